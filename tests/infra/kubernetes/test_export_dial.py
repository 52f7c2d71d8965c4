"""What `argosy export` shows where agents dial: the mount, and a secret without what is secret."""

from __future__ import annotations

import yaml

from argosy.infra.kubernetes.manifests.compose import DIAL_MOUNT, dial_secret
from argosy.infra.kubernetes.manifests.export import manifests
from tests.infra.kubernetes.requests import OWNER, a_request, settings

TO = "10.0.0.5:7443"


def exported(dial: str) -> tuple[str, dict[tuple[str, str], dict]]:
    """The text, and its documents by kind and name."""
    text = manifests("kubernetes/prod", [a_request()], settings(dial=dial), {})
    found = list(yaml.safe_load_all(text))
    return text, {(one["kind"], one["metadata"]["name"]): one for one in found}


def test_the_pod_and_the_secret_of_its_lease_are_there():
    text, found = exported(TO)
    (name,) = (name for kind, name in found if kind == "Pod")
    spec, secret = found["Pod", name]["spec"], found["Secret", name]
    assert {"secretName": name, "defaultMode": 0o444} in (
        one.get("secret") for one in spec["volumes"]
    )
    container = spec["containers"][0]
    assert DIAL_MOUNT in container["volumeMounts"]
    assert {"name": "ARGOSY_DIAL", "value": TO} in container["env"]
    made = dial_secret(a_request(), OWNER, "", "of the server", "of the lease")
    assert secret == {key: value for key, value in made.items() if key != "data"}
    assert "are left out here: a launch makes them" in text.split("kind: Secret")[1]


def test_without_an_address_nothing_of_it_is_there():
    text, found = exported("")
    assert [name for kind, name in found if kind == "Secret"] == [f"argosy-{a_request().group}"]
    assert "dial" not in text
