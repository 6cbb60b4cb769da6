"""Proofs that a model carries, checked by code that shares nothing with what made them."""

from nearfar.proofs.verdict import Verification, verify

__all__ = ["Verification", "verify"]
