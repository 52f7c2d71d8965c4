"""What tests of Argosy, and of infras made elsewhere, are built from."""
