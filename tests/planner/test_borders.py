"""The value of an open field will do and the next one will not, whatever the question: asked again one by one."""

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from service.planner.unknowns import UNKNOWNS
from tests.planner.borders import asked, cases, judged, wrong

NEAR = 40
"""Values beside each border that are asked again."""


@pytest.mark.parametrize("name", UNKNOWNS)
@given(data=st.data())
@settings(deadline=None, max_examples=10, suppress_health_check=list(HealthCheck))
def test_the_border_is_where_the_search_says(name: str, data: st.DataObject) -> None:
    case = data.draw(cases(name))
    found = asked(case)
    if found is None:
        assert not any(judged(case, value) for value in UNKNOWNS[name].values(case.question, 1)[:NEAR])
        assume(False)
    assert found is not None
    assert wrong(case, found, NEAR) == []
    assert found.found is not None or found.beyond is not None
    assert found.beyond is None or found.beyond.why_not is not None
