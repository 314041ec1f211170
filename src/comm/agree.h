// Small agreements of a group: texts to one rank and an answer to all. For control, not for data: a few messages a step at
// most. An error on any rank becomes the same Error on every rank, so no rank waits for one that has given up.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace ingot {

/// Every rank's text, in rank order, on every rank.
std::vector<std::string> all_gather_text(Communicator& group, const std::string& text);

/// Rank `root`'s text on every rank.
std::string broadcast_text(Communicator& group, const std::string& text, int root = 0);

/// Every rank gives what `mine` returns; rank 0 makes of them, in rank order, one answer with `decide`, which all ranks
/// return. Where `mine` or `decide` throws an Error, all ranks throw it; it names the rank where there are several.
/// group == nullptr: one rank alone.
std::string agree(Communicator* group, const std::function<std::string()>& mine,
                  const std::function<std::string(const std::vector<std::string>&)>& decide);

}  // namespace ingot
