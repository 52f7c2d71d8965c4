"""The client for programs that use asyncio: the same verbs, awaited, over the same unix socket.

async with asyncio.timeout(60):
    client = Client()
    accepted = await client.launch(launch_body("group.yaml"))
    async for view in client.watch(accepted.id):
        print(view.phase)
"""

from argosy.sdk.aio.client import Client

__all__ = ["Client"]
