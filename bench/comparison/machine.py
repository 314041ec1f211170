"""The machine that measures: its cores, what programs need to know of them, who else uses them, and its description."""

import os
import pathlib
import platform


def cores(threads):
    """The first cores that this process may use."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < threads:
        raise SystemExit(f"{threads} threads on {len(allowed)} cores: shares would mean nothing; give --threads={len(allowed)}")
    return allowed[:threads]


def environment(threads):
    """Ours and the peers' as their best users set it: one thread a core, threads that stay there."""
    places = " ".join(str(c) for c in cores(threads))
    return dict(os.environ, INGOT_THREADS=str(threads), OMP_NUM_THREADS=str(threads), GOMP_CPU_AFFINITY=places, RAYON_NUM_THREADS=str(threads),
                TOKENIZERS_PARALLELISM="false" if threads == 1 else "true", PYTHONDONTWRITEBYTECODE="1")


class Foreign:
    """The share of the machine's processor time that others used while something ran."""

    def __init__(self):
        self.begin = self._now()

    @staticmethod
    def _now():
        fields = [int(x) for x in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        t = os.times()
        own = t.user + t.system + t.children_user + t.children_system
        return sum(fields) / os.sysconf("SC_CLK_TCK"), (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK") - own

    def share(self):
        """Call when all children have been waited for."""
        whole, others = (after - before for before, after in zip(self.begin, self._now()))
        return max(0.0, others / whole) if whole > 0 else 0.0


def describe():
    """Family, cores, caches: what the numbers depend on, and no name of a host."""
    text = pathlib.Path("/proc/cpuinfo").read_text()
    field = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    caches = []
    for cache in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        read = lambda name, cache=cache: (cache / name).read_text().strip()
        if read("type") != "Instruction":
            caches.append(f"L{read('level')} {read('size')}")
    flags = field.get("flags", "").split()
    memory = int(pathlib.Path("/proc/meminfo").read_text().split()[1]) / 2**20
    return {"processor": f"{field.get('model name', 'unknown')} (family {field.get('cpu family')}, model {field.get('model')})",
            "cores": os.cpu_count(), "caches": caches, "memory_gib": round(memory, 1), "kernel": platform.release().split("-")[0],
            "features": [f for f in ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16") if f in flags]}
