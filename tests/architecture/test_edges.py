"""Fails when a folder includes or links what the root CMakeLists.txt does not allow it.

Usage: test_edges.py SOURCE_DIR EDGES_FILE
"""
import pathlib
import re
import sys

FOLDERS = ("probes", "cases", "harness", "goldens", "tools")

# First match wins: pattern of an included header -> what it belongs to.
HEADERS = [
    (r"h3diff/(probes|cases|harness|goldens)/", None),
    (r"(torch|ATen|c10|caffe2)/", "torch"),
    (r"(hdf5|H5[A-Za-z]*public)\.h", "hdf5"),
    (r"(Eigen|unsupported/Eigen)/", "eigen"),
    (r"CLI/", "cli11"),
    (r"nlohmann/", "nlohmann_json"),
    (r"fmt/", "fmt"),
    (r"openssl/", "openssl"),
    (r"(cuda|cublas|cudnn|nvrtc)", "cuda"),
    (r"(gtest|gmock|benchmark)/", "tests"),
]

# Names of CMake targets -> what they belong to.
LINKS = [
    (r"h3diff(?:::|_)([a-z]+)", None), # a folder's libraries are named after it: harness, harness_core
    (r"hdf5", "hdf5"),
    (r"fmt::", "fmt"),
    (r"nlohmann_json", "nlohmann_json"),
    (r"OpenSSL::", "openssl"),
    (r"Eigen3::", "eigen"),
    (r"CLI11::", "cli11"),
    (r"Threads::", "threads"),
    (r"CUDA::", "cuda"),
    (r"torch", "torch"),
]


def belongs_to(name, table):
    for pattern, owner in table:
        match = re.match(pattern, name)
        if match:
            return owner or next(group for group in match.groups() if group)
    return None


def main(source, edges_file):
    allowed, links = {}, {}
    for line in pathlib.Path(edges_file).read_text().splitlines():
        kind, folder, *rest = line.split(" ", 2)
        names = [name for name in re.split(r"[,;]", rest[0] if rest else "") if name]
        if kind == "allowed":
            allowed[folder] = names
        else:
            links.setdefault(folder, []).extend(names)
    assert set(allowed) == set(FOLDERS), f"edges are stated for {sorted(allowed)}"

    problems, files = [], 0
    for folder in FOLDERS:
        may = set(allowed[folder]) | {folder}
        for path in sorted(pathlib.Path(source, folder).rglob("*")):
            if path.suffix not in (".cpp", ".hpp", ".h", ".c", ".cu", ".cuh"):
                continue
            files += 1
            for number, text in enumerate(path.read_text().splitlines(), 1):
                include = re.match(r'\s*#\s*include\s*[<"]([^">]+)[">]', text)
                if not include:
                    continue
                owner = belongs_to(include[1], HEADERS)
                if owner is not None and owner not in may:
                    problems.append(f"{path.relative_to(source)}:{number}: {folder}/ may not include {include[1]} ({owner})")
                if path.suffix in (".cu", ".cuh") and owner == "torch":
                    problems.append(f"{path.relative_to(source)}:{number}: CUDA sources include no torch header")
        for name in links.get(folder, []):
            name = re.sub(r"^\$<LINK_ONLY:(.*)>$", r"\1", name).rstrip(">")
            owner = belongs_to(name, LINKS)
            if owner is None:
                if re.match(r"(-|\$<|::@|dl$)", name):
                    continue
                problems.append(f"{folder}/CMakeLists.txt links {name}, which tests/architecture does not know")
            elif owner not in may:
                problems.append(f"{folder}/CMakeLists.txt links {name} ({owner}): not allowed")

    assert files > 20, f"only {files} sources found in {source}"
    for problem in problems:
        print(problem)
    print(f"{files} sources, {len(problems)} forbidden edges")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
