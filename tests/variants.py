"""scikit-learn's checks of estimators whose parameters are not the default ones.

Every class has passed all checks with its default parameters, see
`tests/contracts/test_defaults.py`. Other parameters choose another algorithm, not another way to
read data, to refuse it, or to be cloned: these checks are the matter of the class.
"""

from functools import partial

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

OF_THE_CLASS = {
    # names, tags and parameters
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
    # how data is read
    "check_array_api_input",
    "check_classifier_data_not_an_array",
    "check_dtype_object",
    "check_f_contiguous_array_estimator",
    "check_fit_score_takes_y",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    "check_pipeline_consistency",
    "check_positive_only_tag_during_fit",
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",  # as with dense data
    "check_sample_weights_list",
    "check_sample_weights_not_an_array",
    "check_sample_weights_not_overwritten",
    "check_sample_weights_pandas_series",
    "check_sample_weights_shape",
    "check_transformer_data_not_an_array",
    # what is refused
    "check_classifiers_regression_target",
    "check_complex_data",
    "check_estimator_sparse_array",
    "check_estimator_sparse_matrix",
    "check_estimator_sparse_tag",
    "check_estimators_empty_data_messages",
    "check_estimators_nan_inf",
    "check_estimators_unfitted",
    "check_fit1d",
    "check_fit_check_is_fitted",
    "check_requires_y_none",
    "check_supervised_y_2d",
    "check_supervised_y_no_nan",
}


def _learns(check):
    """Whether the check depends on what is learned, and is not repeated on read-only data."""
    while isinstance(check, partial):
        if check.keywords.get("readonly_memmap"):
            return False  # check_readonly_memmap_input has such data
        check = check.func
    return check.__name__ not in OF_THE_CLASS


def _name(check):
    while isinstance(check, partial):
        check = check.func
    return check.__name__


def _is_default(estimator):
    """Whether its parameters are the default ones, but for the seed, which the checks set."""
    defaults = type(estimator)()
    if hasattr(estimator, "random_state"):
        defaults.set_params(random_state=estimator.random_state)
    return repr(estimator) == repr(defaults)


def checks_of_variants(estimators, but=()):
    """A mark that runs the checks of what is learned on those with other than default parameters.

    The test has the arguments `estimator` and `check`. The checks named by `but` are left out: the
    module itself tests the same of each of these estimators.
    """
    cases = [
        pytest.param(estimator, check, id=f"{estimator!r}-{_name(check)}")
        for estimator in estimators
        if not _is_default(estimator)
        for _, check in estimator_checks_generator(estimator)
        if _learns(check) and _name(check) not in but
    ]
    return pytest.mark.parametrize(("estimator", "check"), cases)
