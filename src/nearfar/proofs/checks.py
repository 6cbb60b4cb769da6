"""The check of each learner, which reads its problem from the table, the model and the proof."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nearfar.proofs.claims import Proof
from nearfar.proofs.found import Found
from nearfar.proofs.margins import check_lmnn
from nearfar.proofs.pairs import check_dml_eig, check_mmc
from nearfar.proofs.soft_neighbors import check_mcml, check_nca
from nearfar.proofs.tuples import check_itml, check_scml, check_sdml
from nearfar.proofs.unfolding import check_mvu

CHECKS: dict[str, Callable[[Any, Proof, Any, Any, Any], Found]] = {
    **dict.fromkeys(("LMNN", "KernelLMNN", "MultiMetricLMNN"), check_lmnn),
    **dict.fromkeys(("MCML", "KernelMCML"), check_mcml),
    **dict.fromkeys(("MMC", "KernelMMC"), check_mmc),
    **{"DMLEig": check_dml_eig, "MVU": check_mvu, "NCA": check_nca},
    **{"ITML": check_itml, "SDML": check_sdml, "SCML": check_scml},
}
