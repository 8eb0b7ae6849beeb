# SPDX-License-Identifier: Apache-2.0
"""Labs in containers, on the wall clock: each cell has the whole machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from qbed.base.errors import QbedError
from qbed.base.locations import checkout
from qbed.plan.model import Plan
from qbed.substrates import Clock, Deployment, Finding, Inputs, Limits, MissingPart, Samples, SubstrateError, UpReport
from qbed.substrates.containers import NAME, bmv2, containerlab, session
from qbed.substrates.containers.cell import ContainersCell
from qbed.substrates.containers.engine import Engine
from qbed.substrates.containers.images import images, role
from qbed.substrates.containers.labs import read_record, records
from qbed.substrates.containers.placement import Machine, place

FIX = "install Docker and Containerlab" if checkout() is None else "make containers"


@dataclass(frozen=True)
class ContainersSubstrate:
    """A `qbed.substrates.Substrate`."""

    machine: Machine = field(default_factory=Machine)
    name: str = NAME
    clock: Clock = "wall"
    cells_at_once: int | None = 1
    inputs: Inputs | None = None
    _images: dict[str, str] = field(default_factory=dict)

    def _images_of(self, plan: Plan) -> dict[str, str]:
        """The images by role, those of the plan's nodes among them; they are built where they are not there."""
        roles = {role(node) for node in plan.nodes} | ({bmv2.ROLE} if bmv2.switches(plan) else set())
        if not roles <= set(self._images):
            self._images.update(images(roles, build=True))
        return self._images

    def many_cells(self) -> AbstractContextManager[None]:
        return nullcontext()

    def cell(self, folder: Path, plan: Plan, dilation: int = 1) -> ContainersCell:
        placement = place(plan, self.machine, dilation)
        return ContainersCell(folder, plan, placement, self._images_of(plan))

    def check_name_free(self, name: str) -> None:
        session.check_name_free(name)

    def up(self, plan: Plan, file: Path, dilation: int, limits: Limits) -> UpReport:
        self.check_name_free(plan.lab)  # before images are built
        placement = place(plan, self.machine, dilation)
        session.start(plan, file, placement, self._images_of(plan))
        return UpReport(list(placement.notes), list(placement.warnings))

    def deployments(self) -> list[Deployment]:
        return [session.ContainerDeployment(record) for record in records()]

    def find(self, name: str) -> Deployment | None:
        record = read_record(name)
        return None if record is None else session.ContainerDeployment(record)

    def samples(self, folder: Path, plan: Plan) -> Samples:
        return session.samples(folder, plan)

    def missing_parts(self, plan: Plan) -> Iterator[MissingPart]:
        """Only a kernel that the lab selects: images contain a kernel, modules and programs."""
        if plan.kernel is not None:
            text = f"the kernel {plan.kernel} is for virtual time; in containers, nodes run on that of their image"
            yield MissingPart("kernel", plan.kernel, text)

    def examine(self) -> Iterator[Finding]:
        checks: tuple[tuple[str, Callable[[], object]], ...] = (
            ("docker", lambda: Engine().check()),
            ("containerlab", containerlab.find),
            ("container", self._try_container),
        )
        for what, look in checks:
            try:
                look()
            except QbedError as error:
                yield Finding(what, "missing", f"for labs in containers: {error}", FIX)
            else:
                yield Finding(what, "good", "labs in containers can use it")

    @staticmethod
    def _try_container() -> None:
        """Start a container of the hosts' image, if it is built, and remove it."""
        engine = Engine()
        (image,) = images(["host"], build=False).values()
        if not engine.has_image(image):
            raise SubstrateError(f"Docker has no image {image}: `make images` builds the nodes' images")
        engine.try_image(image)


def substrate() -> ContainersSubstrate:
    return ContainersSubstrate()
