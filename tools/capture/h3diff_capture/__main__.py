"""python -m h3diff_capture diffusers|diffsynth BUNDLE -o DUMP"""

import argparse
import sys
import traceback

from . import __version__
from .errors import CaptureError


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m h3diff_capture",
        description="Runs a bundle through a real pipeline and writes what the probes saw as an h3diff dump.",
        epilog="example: python -m h3diff_capture diffusers bundle -o reference.h5 --dtype bf16 --steps 4",
    )
    parser.add_argument("pipeline", choices=("diffusers", "diffsynth"), help="whose forward runs")
    parser.add_argument("bundle", help="folder with transformer/, inputs.safetensors and perhaps case.json")
    parser.add_argument("-o", "--output", required=True, metavar="DUMP", help="the dump to write")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32", help="compute dtype (default: %(default)s)")
    parser.add_argument("--steps", type=int, metavar="N", help="evaluations of the network (default: the bundle's, else 1)")
    parser.add_argument("--capture", default="stats", metavar="SPEC",
                        help='what to keep, for example "stats,blocks.0.*=full,budget=4GiB" (default: %(default)s)')  # fmt: skip
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="CPU threads of torch (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (default: %(default)s)")
    parser.add_argument("--layout", choices=("raw", "comfy", "diffusers"),
                        help="the checkpoint's layout, where nothing tells raw from Comfy")  # fmt: skip
    parser.add_argument("--overwrite", action="store_true", help="replace DUMP if it exists")
    parser.add_argument("--version", action="version", version=f"h3diff_capture {__version__}")
    return parser


def main(argv=None):
    args = _parser().parse_args(argv)
    if args.threads < 1:
        print(f"error: --threads: {args.threads} is not at least 1", file=sys.stderr)
        return 2
    try:
        from .run import run

        run(
            args.pipeline, args.bundle, args.output, args.dtype, args.steps, args.capture, args.threads, args.device,
            args.layout, args.overwrite,
        )  # fmt: skip
    except CaptureError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except ImportError as error:
        print(f"error: a package is missing: {error}", file=sys.stderr)
        return 5
    except KeyboardInterrupt:
        print(f"error: interrupted; finished steps, if any, are in {args.output}.partial", file=sys.stderr)
        return 5
    except MemoryError as error:
        print(f"error: out of memory: {error}", file=sys.stderr)
        return 5
    except Exception:
        traceback.print_exc()
        print("error: this is a bug of h3diff_capture, or of the pipeline it runs", file=sys.stderr)
        return 70
    return 0


if __name__ == "__main__":
    sys.exit(main())
