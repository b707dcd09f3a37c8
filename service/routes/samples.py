"""Routes that sample a matrix: entries and eccentricities."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from service.api.problems import documented
from service.api.schemas.results import Eccentricities, SampleDocument
from service.http.etags import TAGGED
from service.http.parameters import known_parameters
from service.state import Opened, ReadPermit

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["results"], dependencies=[Depends(known_parameters)])

_ANSWERS = {304: {"description": "The client has the answer"}, **documented(404, 409, 410, 413, 422, 507)}
First = Annotated[int, Field(ge=0, lt=2**53, description="Where the rectangle begins, as a position from 0.")]
Count = Annotated[int | None, Field(ge=1, lt=2**53, description="How large it is; to the end if left out.")]


class SampleQuery(BaseModel):
    """The rectangle to sample, as positions and sizes."""

    row: First = 0
    rows: Count = None
    column: First = 0
    columns: Count = None
    size: int = Field(256, ge=1, le=512, description="Most rows and columns of the answer.")


@router.get("/sample", response_model=SampleDocument, responses=_ANSWERS, dependencies=TAGGED)
def get_sample(*, opened: Opened, asked: Annotated[SampleQuery, Query()], _permit: ReadPermit) -> SampleDocument:
    """Evenly spaced rows and columns of a rectangle of the matrix; all of them if there are at most `size`.

    The answer has fewer rows if the matrix is so wide that `size` rows would mean reading more than 512 MiB.

    Args:
        asked: the rectangle, and the most rows and columns of the answer.
    """
    from service.views.pictures.sampling import sample

    return SampleDocument(**sample(opened, **asked.model_dump()))


@router.get("/eccentricities", response_model=Eccentricities, responses=_ANSWERS, dependencies=TAGGED)
def get_eccentricities(
    *,
    opened: Opened,
    size: Annotated[int, Query(ge=1, le=4096, description="Most sources of the answer.")] = 1024,
    _permit: ReadPermit,
) -> Eccentricities:
    """The largest finite distance from evenly spaced sources; from all of them if there are at most `size`.

    Args:
        size: the most sources of the answer.
    """
    from service.views.pictures.sampling import eccentricities

    return Eccentricities(**eccentricities(opened, size))
