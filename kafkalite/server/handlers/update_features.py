"""UpdateFeatures, key 57, v0-2: changes the finalized versions of features (KIP-584, KIP-778).

kafkalite has no finalized features: group protocols and formats do not depend on a level. So level 0 of a feature ("not
finalized") is the current one, and every other level is rejected as that of a feature that the controller does not
support. Only the controller answers.

Source: FeatureControlManager.updateFeature of Apache Kafka 4.3; the results per feature of v0-1 are those of
KafkaController.processFeatureUpdates of 3.9.
"""

import enum

from kafkalite.cluster.changes import Refusal
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from kafkalite.server.requests.call import AdminCall

NO_RESULTS_SINCE = 2

Update = UpdateFeaturesRequest.FeatureUpdateKey
Result = UpdateFeaturesResponse.UpdatableFeatureResult


class UpgradeType(enum.IntEnum):
    """The permitted direction of a change."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


UPGRADE_TYPES = frozenset(UpgradeType)


def update_features(call: AdminCall, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Reject each update on its own; since v2 the first one that is rejected rejects the request."""
    if not call.context.is_controller:
        error, text = KafkaErrorCode.NOT_CONTROLLER, "This broker is not the controller."
        return UpdateFeaturesResponse(error_code=error, error_message=text, results=[])
    outcomes = {update.feature: refusal(update, call.context.broker_id) for update in request.feature_updates}
    if call.version < NO_RESULTS_SINCE:
        return UpdateFeaturesResponse(error_message=None, results=[result(*each) for each in outcomes.items()])
    first = next((each for each in outcomes.values() if each is not None), None)
    if first is None:
        return UpdateFeaturesResponse(error_message=None, results=[])
    text = f"The update failed for all features since the following feature had an error: {first.message}"
    return UpdateFeaturesResponse(error_code=first.error, error_message=text, results=[])


def refusal(update: Update, controller: int) -> Refusal | None:
    """Return why a feature cannot be updated."""
    level = update.max_version_level
    if not update.feature:
        return Refusal(KafkaErrorCode.INVALID_REQUEST, "The name of a feature is empty.")
    if update.upgrade_type not in UPGRADE_TYPES:
        reason = "The controller does not support the given upgrade type."
    elif level < 0:
        reason = "A feature version cannot be less than 0."
    elif level == 0:
        return None
    else:
        reason = f"Local controller {controller} does not support this feature."
    text = f"Invalid update version {level} for feature {update.feature}. {reason}"
    return Refusal(KafkaErrorCode.INVALID_UPDATE_VERSION, text)


def result(feature: str, refused: Refusal | None) -> Result:
    error, message = (refused.error, refused.message) if refused else (0, None)
    return Result(feature=feature, error_code=error, error_message=message)
