"""Of fifty requests that start from one version of a row, one is answered 200 and the others 412, round after round."""

from uuid import uuid4

import pytest

from tests.api.asking import Ask, AskTogether

WRITERS = 50
ROUNDS = 3


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_one_writer_wins_each_round(own: Ask, own_together: AskTogether, method: str) -> None:
    slug = f"raced-{uuid4().hex[:12]}"
    path = f"/v1/clusters/{slug}"
    row = own("POST", "/v1/clusters", json={"slug": slug, "gpu": "h100", "gpus": 8})
    for _ in range(ROUNDS):
        whole = row.json() if method == "PUT" else {}
        requests = [
            {
                "method": method,
                "url": path,
                "headers": {"If-Match": row.headers["etag"]},
                "json": {**whole, "gpus": gpus},
            }
            for gpus in range(1, WRITERS + 1)
        ]
        answers = own_together(requests)
        assert sorted(answer.status_code for answer in answers) == [200, *[412] * (WRITERS - 1)]
        won = next(answer for answer in answers if answer.status_code == 200)
        row = own("GET", path)
        assert row.content == won.content
    assert row.json()["revision"] == ROUNDS + 1
    gone = own_together([{"method": "DELETE", "url": path, "headers": {"If-Match": row.headers["etag"]}}] * 5)
    assert sorted(answer.status_code for answer in gone) == [204, *[404] * 4]


def test_one_of_many_creates_a_row(own: Ask, own_together: AskTogether) -> None:
    slug = f"raced-{uuid4().hex[:12]}"
    body = {"slug": slug, "rates": [{"gpu": "h100", "usd_per_gpu_hour": 1}]}
    answers = own_together([{"method": "POST", "url": "/v1/rate-cards", "json": body}] * 20)
    assert sorted(answer.status_code for answer in answers) == [201, *[409] * 19]
    assert own("DELETE", f"/v1/rate-cards/{slug}", headers={"If-Match": "*"}).status_code == 204
