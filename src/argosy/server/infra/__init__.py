"""What the API says and does about infras: hosts, offers, strangers, hosts that are gone."""
