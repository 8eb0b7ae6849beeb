# SPDX-License-Identifier: Apache-2.0
"""Distributions of sizes and times in a lab file."""

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator

from qbed.base.files import MIB, read_text
from qbed.config.reach import ReachError, beneath
from qbed.config.strict import Strict
from qbed.config.units import LARGEST, Duration, PositiveDuration, Size, between, format_size
from qbed.lab.published import PUBLISHED

_LARGEST_CDF = MIB


class Pareto(Strict):
    """A Pareto distribution of sizes."""

    mean: Annotated[Size, between(1, LARGEST, format_size)]
    """Mean of the distribution before its truncation at `max`."""
    shape: float = Field(gt=1, le=100)
    """Exponent of the tail. The distribution has a mean only above 1."""
    max: Annotated[Size | None, Field(examples=["100 KB"])] = None
    """Largest size. A larger one is drawn again, so the mean of the sizes is below `mean`."""

    @model_validator(mode="after")
    def _above_the_minimum(self) -> "Pareto":
        if self.max is not None and not self.min_bytes < self.max <= LARGEST:
            raise ValueError(f"expected `max` above the smallest size, {self.min_bytes:.0f} B, got {self.max} B")
        return self

    @property
    def min_bytes(self) -> float:
        """The smallest size."""
        return self.mean * (self.shape - 1) / self.shape

    def mean_bytes(self) -> float:
        """Mean of the drawn sizes."""
        if self.max is None:
            return float(self.mean)
        beyond = self.min_bytes / self.max
        return float(self.mean * (1 - beyond ** (self.shape - 1)) / (1 - beyond**self.shape))


def _read_cdf(name: str, info: ValidationInfo) -> str | list[tuple[int, float]]:
    """The points (bytes, probability) of a file of two columns; `#` starts a comment. ValueError if they are no
    distribution.
    """
    folder = (info.context or {}).get("folder")
    if folder is None:
        return name
    try:
        lines = read_text(beneath(Path(folder), name), _LARGEST_CDF).splitlines()
        rows = [line.partition("#")[0].split() for line in lines]
        points = [(int(row[0]), float(row[1])) for row in rows if row]
    except OSError as error:
        raise ValueError(f"cannot read `{name}`: {error.strerror}") from None
    except ReachError:
        raise
    except (ValueError, IndexError, UnicodeDecodeError):
        raise ValueError(f"`{name}`: expected lines of two numbers: bytes, cumulative probability") from None
    rising = all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairwise(points))
    if not points or not rising or points[0][0] < 1 or points[0][1] < 0 or points[-1][1] != 1:
        raise ValueError(f"`{name}`: expected sizes from 1 and probabilities that rise to 1")
    if points[-1][0] > LARGEST:
        raise ValueError(f"`{name}`: expected sizes of at most {LARGEST} bytes")
    return points


Cdf = Annotated[str, AfterValidator(_read_cdf)]


class Sizes(Strict):
    """A distribution of flow sizes: exactly one of these."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    fixed: Annotated[Size, between(1, LARGEST, format_size)] | None = None
    """Every flow has this size."""
    uniform: tuple[Size, Size] | None = None
    """Uniformly distributed from the first to the second."""
    pareto: Pareto | None = None
    """Pareto distribution: many small flows, few very large ones."""
    cdf: Cdf | None = None
    """A file beside the lab file with lines of two numbers: bytes, cumulative probability."""
    published: Literal["web-search", "data-mining"] | None = None
    """A distribution that a paper measured: `web-search` (Data Center TCP, SIGCOMM 2010, Fig. 4) or `data-mining`
    (VL2, SIGCOMM 2009, Fig. 2).
    """

    @model_validator(mode="after")
    def _exactly_one(self) -> "Sizes":
        given = [name for name in Sizes.model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("expected exactly one of " + ", ".join(f"`{name}`" for name in Sizes.model_fields))
        if self.uniform is not None and not 1 <= self.uniform[0] <= self.uniform[1]:
            raise ValueError("`uniform` needs two sizes from 1 byte, the smaller first")
        return self

    def mean_bytes(self) -> float:
        """The mean."""
        if self.fixed is not None:
            return float(self.fixed)
        if self.uniform is not None:
            return sum(self.uniform) / 2
        if self.pareto is not None:
            return self.pareto.mean_bytes()
        points = self.points()
        steps = zip([(points[0][0], 0.0), *points], points, strict=False)
        return sum((b[1] - a[1]) * (a[0] + b[0]) / 2 for a, b in steps)

    def points(self) -> list[tuple[int, float]]:
        """The points of `cdf` or `published`: bytes, cumulative probability."""
        if self.published is not None:
            return list(PUBLISHED[self.published])
        assert isinstance(self.cdf, list)
        return self.cdf


def _fixed_size(value: object) -> object:
    return {"fixed": value} if isinstance(value, str) else value


class ParetoTime(Strict):
    """A Pareto distribution of times."""

    mean: PositiveDuration
    """Mean of the distribution."""
    shape: float = Field(gt=1, le=100)
    """Exponent of the tail. The distribution has a mean only above 1."""


class Times(Strict):
    """A distribution of times: exactly one of these."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    fixed: Duration | None = None
    """Every value is this one."""
    exponential: PositiveDuration | None = None
    """Exponential distribution with this mean."""
    uniform: tuple[Duration, Duration] | None = None
    """Uniformly distributed from the first to the second."""
    pareto: ParetoTime | None = None
    """Pareto distribution: many short times, few very long ones."""

    @model_validator(mode="after")
    def _exactly_one(self) -> "Times":
        if len([name for name in Times.model_fields if getattr(self, name) is not None]) != 1:
            raise ValueError("expected exactly one of " + ", ".join(f"`{name}`" for name in Times.model_fields))
        if self.uniform is not None and self.uniform[0] > self.uniform[1]:
            raise ValueError("`uniform` needs two times, the shorter first")
        return self


def _fixed_time(value: object) -> object:
    return value if isinstance(value, dict | Times) else {"fixed": value}


SizesOrSize = Annotated[Sizes, BeforeValidator(_fixed_size, json_schema_input_type=Size | Sizes)]
TimesOrTime = Annotated[Times, BeforeValidator(_fixed_time, json_schema_input_type=Duration | Times)]
