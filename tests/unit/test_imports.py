"""The package imports on every system, and shows its public names without importing torch."""

from __future__ import annotations

import subprocess
import sys

BLOCKED = ("fcntl", "resource", "termios", "grp", "pwd", "pty", "tty")


def test_every_module_imports_without_what_windows_lacks() -> None:
    """As far as it is ours: the libraries are imported first, since on Windows they have builds of their own."""
    script = f"""
import pkgutil, sys
import filelock, numpy, pydantic, rich.console, rich.progress, sacrebleu, safetensors.torch, tokenizers
import torch, torch.distributed

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name in {BLOCKED!r}:
            raise ModuleNotFoundError(f"{{name}}: not on this system", name=name)

for name in {BLOCKED!r}:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Blocked())
import os, signal
missing = "O_CLOEXEC O_NONBLOCK O_NOFOLLOW pread sysconf sched_getaffinity fork"
for place, names in ((os, missing), (signal, "SIGHUP SIGPIPE SIGKILL")):
    for name in names.split():
        delattr(place, name)
import transduce
count = 0
for module in pkgutil.walk_packages(transduce.__path__, "transduce."):
    if not module.name.endswith("__main__"):
        __import__(module.name)
        count += 1
print(count)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


def test_public_names_are_shown_without_importing_torch() -> None:
    script = """
import sys, transduce
assert dir(transduce) == sorted(transduce.__all__) and "Translator" in dir(transduce)
assert issubclass(transduce.errors.DataError, transduce.errors.TransduceError)
try:
    transduce.lod
except AttributeError as error:
    assert "did you mean 'load'?" in str(error), error
assert "torch" not in sys.modules and "huggingface_hub" not in sys.modules
import pydoc
page = pydoc.plain(pydoc.render_doc(transduce))
for name in transduce.__all__:
    assert name in ("errors", "__version__") or name in page, name
assert "huggingface_hub" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
