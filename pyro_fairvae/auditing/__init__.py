"""Fairness of decisions when some people's group is unknown, with intervals.

>>> result = audit(y_true, y_pred, sensitive_features=table["sex"], X=table)
>>> print(result)
>>> result.metrics.loc["deo", ["estimate", "low", "high"]]
"""

from pyro_fairvae.auditing.auditing import AUDITED, DEPENDS_ON, audit
from pyro_fairvae.auditing.number_audit import NumberAudit, audit_numbers
from pyro_fairvae.auditing.result import Audit

__all__ = ["AUDITED", "DEPENDS_ON", "Audit", "NumberAudit", "audit", "audit_numbers"]
