// What the log of a collective library says about the ways that data takes, and what a matrix of peer access
// says: text that people give to `ingot doctor --log`. Parsers; they never throw for what a file contains.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "measure/doctor.h"

namespace ingot::doctor {

/// Of a log of NCCL or RCCL with NCCL_DEBUG=INFO, or the output of `nvidia-smi topo -p2p r`, told apart by
/// what they contain. `name`: of the file, for the texts. A note for each of these, with its remedy:
///   peer access    ranks of one host that exchange through its memory or the network; pairs without access
///   transport      networks through sockets, or through the host's memory
///   channels       one channel to each peer on another host, where the library has two in smaller jobs
/// and a fact for what is well. A file with neither is a note.
std::vector<Finding> findings_of_log(const std::string& name, std::string_view text);

}  // namespace ingot::doctor
