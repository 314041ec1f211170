// Wrong replies that look like right ones: candidates for rows that teach a model to tell them apart before
// there is a model whose own mistakes could be shown. Pure functions; thread-safe.
#pragma once
#include <optional>

#include "environments/environment.h"

namespace ingot::reason {

/// `right`, a right reply, with one part of its answer changed: a digit or letter of it is another one, or,
/// unless `in_reasoning`, a word is left out, repeated or in another place. With `in_reasoning` the changed
/// word is changed in the last line of the reasoning that has it, too; then one must. Nothing where 32 draws
/// find no such reply that the environment judges as wrong.
std::optional<chat::Message> with_mistake(const environments::Environment& environment,
                                          const environments::Problem& problem, const chat::Message& right,
                                          bool in_reasoning, const Random& random);

}  // namespace ingot::reason
