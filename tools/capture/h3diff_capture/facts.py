"""Facts of a run: docs/dump-format.md section 3."""

import importlib.metadata
import os
import subprocess

import torch

from . import __version__
from .dump import dtype_name


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def environment_facts(device):
    facts = {
        "producer": f"h3diff_capture {__version__}",
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "isa": torch.backends.cpu.get_cpu_capability(),
        "mkl_cbwr": os.environ.get("MKL_CBWR", ""),
        "deterministic": int(torch.are_deterministic_algorithms_enabled()),
        "device": "cpu",
    }
    if device.type == "cuda":
        facts["cuda"] = torch.version.cuda
        facts["device"] = torch.cuda.get_device_name(device)
        facts["sm"] = "{}{}".format(*torch.cuda.get_device_capability(device))
        driver = _driver_version()
        if driver:
            facts["driver"] = driver
    return facts


def _driver_version():
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
    return lines[0].strip() if lines else None


def pipeline_facts(name, dtype):
    short = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}.get(dtype, dtype_name(dtype))
    return {
        "pipeline": name,
        "pipeline_version": version_of(name),
        "profile": f"{name}-{short}",
        "compute_dtype": dtype_name(dtype),
    }


def bundle_facts(bundle):
    facts = {
        "bundle": bundle.name,
        "case_digest": bundle.case_digest(),
        "checkpoint_digest": bundle.checkpoint.digest(),
        "checkpoint_layout": bundle.checkpoint.layout,
    }
    if bundle.case_name:
        facts["case"] = bundle.case_name
    if bundle.seed is not None:
        facts["seed"] = bundle.seed
    return facts
