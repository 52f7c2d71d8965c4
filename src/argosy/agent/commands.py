"""Short commands for an infra: what the machine is, and ending a network that no agent is left to
end.
"""

from __future__ import annotations

import json
import os
import sys


def facts(home: str, shared: str) -> int:
    """Print the facts of this machine, with the network that a trial found, as one line of JSON."""
    from . import facts as host
    from .net import trial

    os.makedirs(shared, mode=0o700, exist_ok=True)
    found = host.host_facts(home)
    trial.clear(shared)
    found["network"] = trial.trial(shared)
    print(json.dumps(found))
    return 0


def end_network(shared: str, group: str) -> int:
    """End the network of a group, whoever uses it, and remove the group's own volumes; 0 once
    nothing of them is left.
    """
    from .attempt import volumes
    from .naming import safe_name
    from .net import host, isolated, network

    folder = os.path.join(shared, "groups", safe_name(group))
    found = network.load(os.path.join(folder, "net"))
    try:
        if found is not None:
            (isolated if found.mode == "isolated" else host).destroy(found.record())
        volumes.leave(folder)
    except (OSError, network.NetworkError) as error:
        sys.stderr.write("error: %s\n" % error)
        return 1
    return 0
