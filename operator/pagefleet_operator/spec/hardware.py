"""spec.hardware: which accelerators a fleet may use."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from pagefleet_operator.spec.fields import LabelValue, Quantity, SpecPart

Product = Annotated[
    str, StringConstraints(strict=True, max_length=63, pattern=r"^[A-Za-z0-9][-A-Za-z0-9_.]*$")
]
LabelKey = Annotated[str, StringConstraints(strict=True, max_length=317)]


class Hardware(SpecPart):
    """Where engine pods may run, and how large a CPU pod is."""

    accelerator: Literal["GPU", "CPU"] | None = Field(
        default=None, description="Kind of device the engine computes on. Absent: GPU."
    )
    products: tuple[Product, ...] | None = Field(
        default=None,
        max_length=16,
        min_length=1,
        description="GPU products that may be used, as in the node label nvidia.com/gpu.product, "
        "such as NVIDIA-A100-SXM4-80GB. Absent: any that the cluster has.",
    )
    cpu: Quantity | None = Field(
        default=None,
        description="CPU only: cores of one engine pod. Absent: one per GiB of weights, 1 to 8.",
    )
    memory: Quantity | None = Field(
        default=None,
        description="CPU only: memory of one engine pod; the plan divides exactly this. Absent: "
        "the least that serves spec.workload.",
    )
    node_selector: dict[LabelKey, LabelValue] | None = Field(
        default=None, max_length=16, description="Labels that a node must carry. Absent: none."
    )

    @property
    def kind(self) -> Literal["GPU", "CPU"]:
        return self.accelerator or "GPU"
