"""A plugin and the engine that started it: they live and die together."""

from __future__ import annotations

import os
import signal
import threading
import time

LOOK_EVERY_S = 1.0


def die_with_the_engine() -> None:
    """Ends this process when the engine is gone: one that was killed closes no plugin."""
    engine = os.getppid()

    def watch() -> None:
        while os.getppid() == engine:
            time.sleep(LOOK_EVERY_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def kill_the_engine() -> None:
    """Ends the update as a machine that goes away does: nothing is closed, nothing more is recorded."""
    os.kill(os.getppid(), signal.SIGKILL)
    os._exit(1)
