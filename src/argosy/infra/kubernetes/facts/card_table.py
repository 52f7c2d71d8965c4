"""What cards are called in clusters: a table of labels, their values and our short names.

A row is (short name, GiB, values by who writes the label). A value that no row has is read by the
common rule of `infra/card_names.py`, so a new card needs no row; a row is for what the rule would
read wrongly, and for asking for a card on a cluster that has no node with it yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NVIDIA: Final = "nvidia.com/gpu"
AMD: Final = "amd.com/gpu"
TPU: Final = "google.com/tpu"

GFD: Final = "nvidia.com/gpu.product"  # NVIDIA's feature discovery
GKE: Final = "cloud.google.com/gke-accelerator"
EKS: Final = "k8s.amazonaws.com/accelerator"
KARPENTER: Final = "karpenter.k8s.aws/instance-gpu-name"
EKS_AUTO: Final = "eks.amazonaws.com/instance-gpu-name"
COREWEAVE: Final = "gpu.nvidia.com/class"
BY_HAND: Final = "skypilot.co/accelerator"  # by hand, or by SkyPilot's own labeller
AMD_LABELLER: Final = "amd.com/gpu.product-name"
AMD_LABELLER_BETA: Final = "beta.amd.com/gpu.product-name"
GKE_TPU: Final = "cloud.google.com/gke-tpu-accelerator"
GKE_TOPOLOGY: Final = "cloud.google.com/gke-tpu-topology"

# Resource -> the keys that name its product, the most exact first.
LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    NVIDIA: (GFD, COREWEAVE, GKE, EKS, KARPENTER, EKS_AUTO, BY_HAND),
    AMD: (AMD_LABELLER, AMD_LABELLER_BETA, BY_HAND),
    TPU: (GKE_TPU,),
    "gpu.intel.com/i915": ("gpu.intel.com/product",),
    "gpu.intel.com/xe": ("gpu.intel.com/product",),
    "habana.ai/gaudi": (),
    "aws.amazon.com/neuron": ("karpenter.k8s.aws/instance-accelerator-name",),
}
BARE: Final[Mapping[str, str]] = {  # the name where no label says which one it is
    NVIDIA: "GPU",
    AMD: "AMD-GPU",
    TPU: "TPU",
    "gpu.intel.com/i915": "Intel-GPU",
    "gpu.intel.com/xe": "Intel-GPU-Xe",
    "habana.ai/gaudi": "Gaudi",
    "aws.amazon.com/neuron": "Neuron",
}
PINNED: Final[Mapping[str, tuple[str, ...]]] = {TPU: (GKE_TOPOLOGY,)}  # beside the product's
MEMORY_LABELS: Final = ("nvidia.com/gpu.memory", "karpenter.k8s.aws/instance-gpu-memory")  # MiB

Row = tuple[str, float, Mapping[str, tuple[str, ...]]]

NVIDIA_ROWS: Final[tuple[Row, ...]] = (
    ("GB200", 186, {GFD: ("NVIDIA-GB200",), GKE: ("nvidia-gb200",), COREWEAVE: ("GB200",)}),
    ("B300", 288, {GFD: ("NVIDIA-B300-SXM6-AC",), COREWEAVE: ("B300",), KARPENTER: ("b300",)}),
    ("B200", 180, {GFD: ("NVIDIA-B200",), GKE: ("nvidia-b200",), COREWEAVE: ("B200",),
                   KARPENTER: ("b200",)}),
    ("GH200", 96, {GFD: ("NVIDIA-GH200-480GB",), COREWEAVE: ("GH200_480GB", "GH200")}),
    ("H200", 141, {GFD: ("NVIDIA-H200", "NVIDIA-H200-NVL"), GKE: ("nvidia-h200-141gb",),
                   COREWEAVE: ("H200",), KARPENTER: ("h200",)}),
    ("H100", 80, {GFD: ("NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe", "NVIDIA-H100-NVL"),
                  GKE: ("nvidia-h100-80gb", "nvidia-h100-mega-80gb"),
                  COREWEAVE: ("H100_NVLINK_80GB", "H100_NVLINK", "H100_PCIE", "H100"),
                  EKS: ("nvidia-h100",), KARPENTER: ("h100",)}),
    ("A100-80GB", 80, {GFD: ("NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe"),
                       GKE: ("nvidia-a100-80gb",),
                       COREWEAVE: ("A100_NVLINK_80GB", "A100_PCIE_80GB")}),
    ("A100", 40, {GFD: ("NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-PCIE-40GB"),
                  GKE: ("nvidia-tesla-a100",), COREWEAVE: ("A100_NVLINK", "A100_PCIE_40GB"),
                  EKS: ("nvidia-tesla-a100",), KARPENTER: ("a100",)}),
    ("L40S", 48, {GFD: ("NVIDIA-L40S",), COREWEAVE: ("L40S",), EKS: ("nvidia-l40s",),
                  KARPENTER: ("l40s",)}),
    ("L40", 48, {GFD: ("NVIDIA-L40",), COREWEAVE: ("L40",)}),
    ("L4", 24, {GFD: ("NVIDIA-L4",), GKE: ("nvidia-l4",), EKS: ("nvidia-l4",), KARPENTER: ("l4",)}),
    ("A10G", 24, {GFD: ("NVIDIA-A10G",), EKS: ("nvidia-tesla-a10g", "nvidia-a10g"),
                  KARPENTER: ("a10g",)}),
    ("A10", 24, {GFD: ("NVIDIA-A10",)}),
    ("A40", 48, {GFD: ("NVIDIA-A40",), COREWEAVE: ("A40",)}),
    ("RTXPRO6000", 96, {GKE: ("nvidia-rtx-pro-6000",)}),
    ("RTXA6000", 48, {GFD: ("NVIDIA-RTX-A6000",), COREWEAVE: ("RTX_A6000",)}),
    ("RTXA5000", 24, {GFD: ("NVIDIA-RTX-A5000",), COREWEAVE: ("RTX_A5000",)}),
    ("RTXA4000", 16, {GFD: ("NVIDIA-RTX-A4000",), COREWEAVE: ("RTX_A4000",)}),
    ("RTX5000", 16, {GFD: ("Quadro-RTX-5000",), COREWEAVE: ("Quadro_RTX_5000",)}),
    ("RTX4000", 8, {GFD: ("Quadro-RTX-4000",), COREWEAVE: ("Quadro_RTX_4000",)}),
    ("V100", 16, {GFD: ("Tesla-V100-SXM2-16GB", "Tesla-V100-PCIE-16GB"),
                  GKE: ("nvidia-tesla-v100",), COREWEAVE: ("Tesla_V100_NVLINK",),
                  EKS: ("nvidia-tesla-v100",), KARPENTER: ("v100",)}),
    ("T4", 16, {GFD: ("Tesla-T4",), GKE: ("nvidia-tesla-t4",), EKS: ("nvidia-tesla-t4",),
                KARPENTER: ("t4",)}),
    ("P100", 16, {GFD: ("Tesla-P100-PCIE-16GB", "Tesla-P100-SXM2-16GB"),
                  GKE: ("nvidia-tesla-p100",)}),
    ("P4", 8, {GFD: ("Tesla-P4",), GKE: ("nvidia-tesla-p4",)}),
    ("K80", 12, {GFD: ("Tesla-K80",), EKS: ("nvidia-tesla-k80",)}),
)  # fmt: skip
AMD_ROWS: Final[tuple[Row, ...]] = (
    ("MI355X", 288, {AMD_LABELLER: ("AMD_Instinct_MI355X_OAM", "AMD_Instinct_MI355X")}),
    ("MI325X", 256, {AMD_LABELLER: ("AMD_Instinct_MI325X_OAM", "AMD_Instinct_MI325X")}),
    ("MI300X", 192, {AMD_LABELLER: ("AMD_Instinct_MI300X_OAM", "AMD_Instinct_MI300X")}),
    ("MI250X", 128, {AMD_LABELLER: ("AMD_Instinct_MI250X",)}),
    ("MI250", 128, {AMD_LABELLER: ("AMD_Instinct_MI250",)}),
    ("MI210", 64, {AMD_LABELLER: ("AMD_Instinct_MI210",)}),
    ("MI100", 32, {AMD_LABELLER: ("AMD_Instinct_MI100",)}),
)  # fmt: skip
TPU_ROWS: Final[tuple[Row, ...]] = (
    ("tpu-v4", 32, {GKE_TPU: ("tpu-v4-podslice",)}),
    ("tpu-v5e", 16, {GKE_TPU: ("tpu-v5-lite-podslice", "tpu-v5-lite-device")}),
    ("tpu-v5p", 95, {GKE_TPU: ("tpu-v5p-slice",)}),
    ("tpu-v6e", 32, {GKE_TPU: ("tpu-v6e-slice",)}),
)
ROWS: Final[Mapping[str, tuple[Row, ...]]] = {NVIDIA: NVIDIA_ROWS, AMD: AMD_ROWS, TPU: TPU_ROWS}
