"""What an agent does that is alone in a container: PID 1, dialing out, handing its logs over."""
