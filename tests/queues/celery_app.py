"""A Celery application whose broker is a folder."""

from __future__ import annotations

import os

from celery import Celery
from celery.exceptions import SoftTimeLimitExceeded

from tests.queues.jobs import talk

FOLDER = os.environ["QUEUE_FOLDER"]

app = Celery("tests", broker="filesystem://", backend=f"file://{FOLDER}/results")
app.conf.update(
    broker_transport_options={
        "data_folder_in": f"{FOLDER}/messages",
        "data_folder_out": f"{FOLDER}/messages",
        "control_folder": f"{FOLDER}/control",
    },
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)


@app.task(name="celery_job", soft_time_limit=1, time_limit=60)
def celery_job(book: str) -> str:
    return talk(book, SoftTimeLimitExceeded)
