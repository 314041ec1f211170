// Agreement of a group on small texts: every rank contributes one, and all get the same answer. For control
// messages, a few per step, not for data. An error on any rank becomes the same Error on every rank, so no
// rank waits for one that has given up.
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

/// A moment soon, on the clock of rank 0's host (base/clock.h): when its ranks begin what they do together.
double agree_on_begin(Communicator& group);

/// Every rank contributes what `contribute` returns. Rank 0 calls `decide` on the contributions, in rank
/// order, and all ranks return its result. If `contribute` or `decide` throws an Error, all ranks throw it;
/// for a contribution it names the rank. group == nullptr: one rank alone.
std::string agree(Communicator* group, const std::function<std::string()>& contribute,
                  const std::function<std::string(const std::vector<std::string>&)>& decide);

}  // namespace ingot
