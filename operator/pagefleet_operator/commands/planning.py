"""One plan for a command: the operator's own planner on the groups at hand."""

from collections.abc import Sequence

import click

from pagefleet_memory import NodeGroup
from pagefleet_operator.errors import PagefleetError
from pagefleet_operator.model.inspected import InspectedModel
from pagefleet_operator.planning.images import Images
from pagefleet_operator.planning.serving_plan import (
    NO_ACCELERATOR,
    PlanRefusal,
    ServingPlan,
    plan_on_groups,
)
from pagefleet_operator.spec import InferenceDeployment


def plan_for(
    infd: InferenceDeployment, model: InspectedModel, groups: Sequence[NodeGroup]
) -> ServingPlan | PlanRefusal:
    if not groups:
        message = "this machine has no NVIDIA GPU; name one with --gpu to plan for it, or set "
        return PlanRefusal(NO_ACCELERATOR, message + "spec.hardware.accelerator to CPU")
    try:
        return plan_on_groups(infd, model.shape, model.revision, groups, Images.from_env({}))
    except PagefleetError as error:
        raise click.ClickException(str(error)) from error
