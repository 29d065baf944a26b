import json

from services.verify.checks.late_kernels import late_kernels
from shared.runtime.late_kernels import EVENT


def test_a_kernel_that_a_worker_compiled_late_is_named():
    line = json.dumps({"event": EVENT, "kernels": ["picking.shed_listed"], "level": "warning"})
    logs = {"scheduler-1": f'{{"event": "worker started"}}\n{line}\n', "estimator-1": "{}\n"}

    found = late_kernels(logs)

    assert found.examples == ["scheduler-1: picking.shed_listed"]
    assert found.looked_at == 2


def test_workers_that_compile_nothing_pass():
    assert late_kernels({"scheduler-1": '{"event": "worker started"}\n'}).passed
