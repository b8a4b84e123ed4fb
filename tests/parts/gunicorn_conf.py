"""The settings of gunicorn that docs/flask.md shows: a worker that is told to end stops its runs first."""

import signal


def post_worker_init(worker):
    from tests.parts.web_apps import agent

    end_worker = signal.getsignal(signal.SIGTERM)

    def stop_runs(number, frame):
        agent.cancel("The server is shutting down", source="shutdown", arm=False)
        end_worker(number, frame)

    signal.signal(signal.SIGTERM, stop_runs)
