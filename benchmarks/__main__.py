"""`python -m benchmarks [NAME …]`: run the named benchmarks, or all of them."""

import pkgutil
import sys
from importlib import import_module

import benchmarks


def main() -> None:
    known = [module.name for module in pkgutil.iter_modules(benchmarks.__path__) if module.name != "__main__"]
    chosen = sys.argv[1:] or known
    if unknown := [name for name in chosen if name not in known]:
        sys.exit(f"no benchmark named {unknown[0]!r}; there are: {', '.join(known)}")
    for name in chosen:
        print(f"== {name}", flush=True)
        import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
