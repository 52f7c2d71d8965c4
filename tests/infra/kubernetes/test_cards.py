"""What cards are called: labels of many clusters to short names, and back."""

from __future__ import annotations

import pytest

from argosy.infra.kubernetes.facts.card_table import GFD, GKE, NVIDIA, ROWS
from argosy.infra.kubernetes.facts.cards import Card, asked, cards_of, named

EIGHT = {"nvidia.com/gpu": "8", "cpu": "96", "memory": "1Ti"}


@pytest.mark.parametrize(
    ("product", "name", "memory_gib"),
    [
        ("NVIDIA-H100-80GB-HBM3", "H100", 80),
        ("NVIDIA-H100-PCIe", "H100", 80),
        ("NVIDIA-H200", "H200", 141),
        ("NVIDIA-A100-SXM4-40GB", "A100", 40),
        ("NVIDIA-A100-SXM4-80GB", "A100-80GB", 80),
        ("NVIDIA-A100-SXM4-80GB-SHARED", "A100-80GB", 80),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "mig-1g.5gb", 5),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb.me", "mig-1g.10gb.me", 10),
        ("NVIDIA-L40S", "L40S", 48),
        ("Tesla-T4", "T4", 16),
        ("NVIDIA-GeForce-RTX-4090", "RTX4090", 0),
        ("nvidia-h100-mega-80gb", "H100", 80),
        ("nvidia-tesla-a100", "A100", 40),
        ("nvidia-a100-80gb", "A100-80GB", 80),
        ("nvidia-l4", "L4", 24),
        ("H100_NVLINK_80GB", "H100", 80),
        ("A100_PCIE_40GB", "A100", 40),
        ("h200", "H200", 141),
        ("a10g", "A10G", 24),
        ("AMD_Instinct_MI300X_OAM", "MI300X", 192),
        ("tpu-v5-lite-podslice", "tpu-v5e", 16),
        ("NVIDIA-X9-2000GB", "X9", 2000),  # of no row: by the common rule
    ],
)
def test_every_labeller_means_the_same_card(product: str, name: str, memory_gib: float):
    assert named(product) == (name, memory_gib)


def test_the_most_exact_label_of_a_node_counts():
    labels = {
        GFD: "NVIDIA-H100-80GB-HBM3",
        GKE: "nvidia-h100-80gb",
        "nvidia.com/gpu.memory": "81559",
    }
    (card,) = cards_of(labels, EIGHT)
    assert card == Card("H100", NVIDIA, GFD, "NVIDIA-H100-80GB-HBM3", 79.6)
    assert cards_of(labels, EIGHT)[card] == 8


def test_memory_tells_apart_what_a_label_does_not():
    labels = {
        "karpenter.k8s.aws/instance-gpu-name": "a100",
        "karpenter.k8s.aws/instance-gpu-memory": "81920",
    }
    (card,) = cards_of(labels, EIGHT)
    assert (card.name, card.value, card.memory_gib) == ("A100-80GB", "a100", 80.0)


def test_cards_without_a_label_have_a_name_too():
    assert cards_of({}, EIGHT) == {Card("GPU", NVIDIA): 8}
    assert asked("GPU") == (Card("GPU", NVIDIA),)


def test_slices_are_resources_of_their_own_beside_whole_cards():
    amounts = {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "14", "nvidia.com/mig-3g.40gb": "2"}
    assert {card.name: count for card, count in cards_of({GFD: "x"}, amounts).items()} == {
        "mig-1g.10gb": 14,
        "mig-3g.40gb": 2,
    }
    (card,) = asked("MIG-1g.10gb")
    assert (card.resource, card.label) == ("nvidia.com/mig-1g.10gb", "")


def test_a_node_without_cards_has_none():
    assert cards_of({GFD: "NVIDIA-H100-PCIe"}, {"cpu": "8", "nvidia.com/gpu": "0"}) == {}


def test_a_card_is_asked_for_by_the_labels_that_the_nodes_have():
    sxm = Card("H100", NVIDIA, GFD, "NVIDIA-H100-80GB-HBM3", 80.0)
    pcie = Card("H100", NVIDIA, GFD, "NVIDIA-H100-PCIe", 80.0)
    other = Card("L4", NVIDIA, GFD, "NVIDIA-L4", 24.0)
    assert asked("h100", (pcie, other, sxm)) == (sxm, pcie)


def test_a_card_that_no_node_has_is_asked_for_in_the_words_of_every_labeller():
    found = asked("H100")
    assert {card.resource for card in found} == {NVIDIA}
    assert {(GFD, "NVIDIA-H100-80GB-HBM3"), (GKE, "nvidia-h100-80gb")} <= {
        (card.label, card.value) for card in found
    }
    assert asked("NoSuchCard") == ()


def test_the_table_reads_back_as_itself():
    for resource, rows in ROWS.items():
        for name, _, _ in rows:
            for card in asked(name):
                assert card.resource == resource
                assert named(card.value)[0] == name, card
