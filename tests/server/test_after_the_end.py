"""A client that comes back after the last event."""

from __future__ import annotations

from pathlib import Path

import pytest

from quiesce.errors import ConfigurationError
from quiesce.server import Settings, create_app

from .support import read_events, serving, start, talker

pytestmark = [pytest.mark.promise("P7"), pytest.mark.timeout(60)]


def test_an_event_source_that_has_seen_the_end_is_told_not_to_come_back(tmp_path: Path):
    """A browser reconnects after every end of a stream, unless the answer is 204."""
    store = tmp_path / "sessions.db"
    with serving(app=create_app(talker(), store=store)) as served, served.client() as client:
        run_id = start(client, session="s")
        last = read_events(client, run_id)[-1][0]
        for header, status in ((str(last), 204), (str(last + 5), 204), (str(last - 1), 200)):
            answer = client.get(f"/runs/{run_id}/events", headers={"Last-Event-ID": header})
            assert (answer.status_code, bool(answer.content)) == (status, status == 200)
        assert client.get(f"/runs/{run_id}/events").status_code == 200
    with serving(app=create_app(talker(), store=store)) as served, served.client() as client:
        answer = client.get(f"/runs/{run_id}/events", headers={"Last-Event-ID": str(last)})
        assert answer.status_code == 204


@pytest.mark.promise("P7")
def test_receipts_that_cannot_be_written_do_not_keep_a_stream_open(tmp_path: Path):
    folder = tmp_path / "folder"
    path = folder / "receipts.jsonl"
    folder.mkdir()
    with serving(app=create_app(talker(), settings=Settings(receipts=path))) as served, served.client() as client:
        path.unlink()
        path.mkdir()
        run_id = start(client)
        assert read_events(client, run_id)[-1][1] == "run_ended"
        assert client.get(f"/runs/{run_id}").json()["run"]["state"] == "ended"


@pytest.mark.promise("P4")
async def test_receipts_that_cannot_be_written_are_refused_at_the_start(tmp_path: Path):
    app = create_app(talker(), settings=Settings(receipts=tmp_path))
    with pytest.raises(ConfigurationError, match="Receipts cannot be written"):
        async with app.open_services():
            pass
