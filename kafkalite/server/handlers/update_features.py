"""UpdateFeatures, key 57, v0-2: changes the finalized levels of features (KIP-584, KIP-778).

The only feature is `transaction.version`. Level 0 of an unknown feature ("not finalized") is the current one, and every
other level of it is rejected. Only the controller answers. All updates are made, or none.

Source: FeatureControlManager.updateFeature of Apache Kafka 4.3; the results per feature of v0-1 are those of
KafkaController.processFeatureUpdates of 3.9.
"""

import enum
from functools import partial

from kafkalite.cluster.changes import Refusal
from kafkalite.cluster.finalized_features import change_levels
from kafkalite.cluster.metadata.image import SUPPORTED_FEATURES
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from kafkalite.server.requests.call import AdminCall

NO_RESULTS_SINCE = 2
UPGRADE_TYPE_SINCE = 1

Update = UpdateFeaturesRequest.FeatureUpdateKey
Result = UpdateFeaturesResponse.UpdatableFeatureResult
Outcomes = dict[str, Refusal | None]


class UpgradeType(enum.IntEnum):
    """The permitted direction of a change."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


UPGRADE_TYPES = frozenset(UpgradeType)


def update_features(call: AdminCall, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse | None:
    """Make all updates if none is rejected; since v2 the first one that is rejected rejects the request."""
    context = call.context
    if not context.is_controller:
        error, text = KafkaErrorCode.NOT_CONTROLLER, "This broker is not the controller."
        return UpdateFeaturesResponse(error_code=error, error_message=text, results=[])
    current = context.features.levels
    outcomes: Outcomes = {}
    changes: dict[str, int] = {}
    for update in request.feature_updates:
        level = current.get(update.feature, 0)
        outcomes[update.feature] = refusal(update, level, upgrade_type(update, call.version), context.broker_id)
        if update.max_version_level != level:
            changes[update.feature] = update.max_version_level
    if not changes or request.validate_only or any(each is not None for each in outcomes.values()):
        return build_response(call, outcomes)
    change_levels(context.features, context.metadata, changes, call.guard(partial(stored, call, outcomes)))
    return None


def stored(call: AdminCall, outcomes: Outcomes, error: int) -> None:
    """Answer after the levels were stored, or could not be."""
    reason = Refusal(error, "The levels of features could not be stored.") if error else None
    call.answer(build_response(call, dict.fromkeys(outcomes, reason)))


def build_response(call: AdminCall, outcomes: Outcomes) -> UpdateFeaturesResponse:
    if call.version < NO_RESULTS_SINCE:
        return UpdateFeaturesResponse(error_message=None, results=[result(*each) for each in outcomes.items()])
    first = next((each for each in outcomes.values() if each is not None), None)
    if first is None:
        return UpdateFeaturesResponse(error_message=None, results=[])
    text = f"The update failed for all features since the following feature had an error: {first.message}"
    return UpdateFeaturesResponse(error_code=first.error, error_message=text, results=[])


def upgrade_type(update: Update, version: int) -> int:
    """The upgrade type; version 0 has a flag."""
    if version >= UPGRADE_TYPE_SINCE:
        return update.upgrade_type
    return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE


def refusal(update: Update, current: int, upgrade: int, controller: int) -> Refusal | None:
    """Return why a feature cannot be updated.

    Arguments:
        update: of the request.
        current: the finalized level, 0 = none.
        upgrade: the upgrade type.
        controller: the id of this broker.
    """
    level = update.max_version_level
    if not update.feature:
        return Refusal(KafkaErrorCode.INVALID_REQUEST, "The name of a feature is empty.")
    _, last = SUPPORTED_FEATURES.get(update.feature, (0, 0))
    if upgrade not in UPGRADE_TYPES:
        reason = "The controller does not support the given upgrade type."
    elif level < 0:
        reason = "A feature version cannot be less than 0."
    elif level > last:
        known = f"only supports versions 0-{last}." if last else "does not support this feature."
        reason = f"Local controller {controller} {known}"
    elif level < current and upgrade == UpgradeType.UPGRADE:
        reason = (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    elif level > current and upgrade != UpgradeType.UPGRADE:
        reason = "Can't downgrade to a newer version."
    else:
        return None
    text = f"Invalid update version {level} for feature {update.feature}. {reason}"
    return Refusal(KafkaErrorCode.INVALID_UPDATE_VERSION, text)


def result(feature: str, refused: Refusal | None) -> Result:
    error, message = (refused.error, refused.message) if refused else (0, None)
    return Result(feature=feature, error_code=error, error_message=message)
