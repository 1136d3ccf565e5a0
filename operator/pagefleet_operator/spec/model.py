"""spec.model: which weights to serve, and under which name."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from pagefleet_operator.spec.fields import Name, SpecPart, Text

Uri = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=512)]
Revision = Annotated[
    str, StringConstraints(strict=True, max_length=128, pattern=r"^[A-Za-z0-9._/-]+$")
]


class ModelRef(SpecPart):
    """The model to serve: where its folder lies, and the name that clients ask for."""

    uri: Uri = Field(
        description="Where the model folder (config.json, tokenizer, safetensors) comes from: "
        "hf://org/name from a Hugging Face hub, pvc://claim/path from a PersistentVolumeClaim of "
        "this namespace, oci://registry/image:tag from an image that carries it in /model.",
        examples=["hf://meta-llama/Llama-3.1-8B-Instruct"],
    )
    name: Text | None = Field(
        default=None,
        description="Model name that clients put in a request. Absent: the name of this object.",
    )
    revision: Revision | None = Field(
        default=None,
        description="Branch, tag or commit of an hf:// model. Absent: the hub's main branch. "
        "The commit it resolved to is in status.model.revision.",
    )
    dtype: Literal["auto", "bfloat16", "float16", "float32"] | None = Field(
        default=None,
        description="Number format of weights and computation. Absent or auto: as stored on a GPU; "
        "on a CPU bfloat16 where the processor is fast at it, else float32.",
    )
    secret_name: Name | None = Field(
        default=None,
        description="Secret of this namespace whose key HF_TOKEN is the hub's access token; for "
        "hf:// models that are gated or private. Absent: no token.",
    )
