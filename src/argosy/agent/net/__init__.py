"""The network of a group on one machine: addresses, names, a way out, and a balanced address.

Two modes with one interface: `isolated` (each node in a network namespace of its own, so two nodes
may both bind 0.0.0.0:8000) and `host` (the machine's network, one 127.x address per node).
A group's network lives in one directory, shared by all agents of the machine that serve the group.
`build` there is "ensure": it may be called again, by anybody, at any time.

What works here (cached per boot id in `directory/trial.json`; about 0.1 s when it is not cached)

    trial.trial(directory, wanted="auto", way_out=None) -> dict
        wanted   "auto" | "isolated" | "host"; isolated that fails is reported, never replaced
        way_out  None: needed where the host has a default route; False: never needed
        keys     mode names pid_namespaces way_out failed_step reason hint  (names: mount |
                 nss_wrapper | none; mode is "none" if wanted is isolated and that does not work)
    trial.forget(directory) -> None    the next call tries again

The network: the same functions in `isolated` and in `host`

    isolated.build(directory, mark, nodes, subnet=None, balanced=(), way_out=True,
                   pid_namespaces=True) -> Network
    host.build(directory, mark, nodes, subnet=None, balanced=(), names="mount", address="")
        -> Network    address: the machine's own, for all nodes, of a group on several hosts
        nodes     names such as "trainer-0"; those that are there already keep their addresses
        balanced  task names that get an address of their own for the proxy
        mark      one word, no blanks; it is in the command line of everything that is started
        raises    network.NetworkError(step, reason, hint)
    X.adopt(record) -> Optional[Network]    None: the holder is gone, and all attempts with it
    X.destroy(record) -> None               idempotent; ends everything, removes the directory
    X.enter_attempt(network, node, hostname, pid_namespace=True) -> dict      (a "spec", JSON)
        pid_namespace False (nodes with accelerators): the group's PID namespace, not one of its own

    Network    mode directory mark subnet router nodes{name: address} balanced{task: address}
               holder way_out pid_namespaces names address bound; `.record()` is a plain dict for
               a journal; `.hosts` is the path of the hosts file. `network.load(directory)` reads
               the record that build keeps beside it (None if there is none).

Names

    names.compose(group, network, machine=None, balanced=None, others=None) -> str
                                     the text of the hosts file; `machine`: further lines, by
                                     default what the machine's own file has; `balanced`: task ->
                                     host name of its proxy; `others`: node elsewhere -> address
    names.rewrite(path, text) -> None                 in place: running programs see it at once

Attempts (used by the launcher, in `enter.py`, which needs os and ctypes only)

    enter.join(written)              in the child that the launcher has just forked, after `alive`
                                     was opened and before it claims: moves it into the group's PID
                                     namespace. Returns in *another* process: the caller's ends with
                                     0. The descriptor gives `join_record` of spec["join"]; where
                                     that is None, skip it.
    enter.enter(spec)                in the program's child, after setsid and the redirection of
                                     output, before descriptors are closed; returns in the same
                                     process, which then sets cwd and environment and executes.
    enter.exec_into(spec, pid, argv, env=None, cwd=None)
                                     in a forked child, with 0-2 in place: runs argv beside the
                                     program whose host pid is `pid`; never returns; exits as it did
    spec["env"]                      variables to add to the program's environment (nss_wrapper)

    Inside the wrapper os.getpid() and os.getppid() count in the group's namespace, while /proc is
    the host's: take host pids from /proc/self/stat (fields 1 and 4), never from os.getpid().
    The wrapper with own=True is PID 1 of its attempt: SIGKILL to it ends all of the attempt.
    With own=False kill `descendants(wrapper)` until it exits; after a SIGKILL of the wrapper itself
    the rest are `isolated.strays(spec)`.

Balanced addresses

    balance.write(network, [Service(task, ports, backends)])   backends: Backend(address, healthy,
                                     draining); the proxy follows within a few milliseconds
    balance.stats(network) -> dict   connections and bytes per backend, at most a second old
                                     (SIGUSR1 to the proxy writes them at once; SIGHUP reads anew)
    supervisor.ensure(network, proxy=True) -> None    starts what is missing, else costs two flocks;
                                     call it after build and every few seconds
    supervisor.stop(network) -> None

Probes and connections, made from within the node's network

    probe.Prober(network)            one child process for all probes of a network
        .fd                          select on it for reading, then .results()
        .ask(node, kind, port, path="/", timeout=1.0) -> int    kind "tcp" or "http"
        .results() -> List[dict]     {"id", "ok", "detail"}; raises EOFError if the child is gone
        .close()
    forward.Connecting(network, node, port, timeout=5.0)     made by a child of one's own
        .fd                          select on it for reading, then .result() -> socket.socket
        .pid                         the child, to be reaped by the caller

What is left (for tests and `argosy doctor`)

    leftovers.leftovers(mark, directory=None) -> List[str]
    leftovers.namespaces() -> Dict[str, Set[str]]     leftovers.links() -> Set[str]

Below, in `linux`: system calls, netlink, the holder, the router's rules. In `proxy`: the proxy.
"""
