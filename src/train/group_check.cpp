// See group_check.h.
#include "train/group_check.h"

#include <chrono>

#include "base/build_info.h"
#include "base/hash.h"
#include "comm/agree.h"
#include "train/resume_check.h"

namespace ingot {
namespace {

/// The first line that differs.
std::string first_difference(const std::string& a, const std::string& b) {
  size_t at = 0;
  while (at < a.size() && at < b.size() && a[at] == b[at]) ++at;
  const auto line = [&](const std::string& text) {
    const size_t begin = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
    const size_t from = begin == std::string::npos ? 0 : begin + 1;
    const std::string found = text.substr(from, text.find_first_of("\n#", from) - from);
    return found.substr(0, found.find_last_not_of(' ') + 1);
  };
  return fmt::format("'{}' and '{}'", line(a), line(b));
}

/// Every rank says the same, or all throw "ranks 0 and 3 do not have the same <what>: ...".
void require_same(Communicator& group, const char* what, const std::function<std::string()>& mine,
                  const char* hint) {
  agree(&group, mine, [&](const std::vector<std::string>& ranks) {
    for (size_t r = 1; r < ranks.size(); ++r)
      if (ranks[r] != ranks[0])
        throw Error(fmt::format("ranks 0 and {} do not have the same {}: {}", r, what,
                                first_difference(ranks[0], ranks[r])),
                    hint);
    return std::string();
  });
}

}  // namespace

void require_same_program(Communicator& group, const Recipe& recipe) {
  if (group.size() == 1) return;
  const auto mine = [&] {
    const auto file = real_file_system().map("/proc/self/exe");
    const auto program = file->bytes();
    return fmt::format("commit {}\nprogram {}\nkernel set {}\n{}", build_info().commit,
                       hash128_hex(program.data(), program.size()), kernel_set_of(recipe),
                       print_config(recipe));
  };
  require_same(group, "program or recipe", mine, "start one program with one recipe on all ranks");
}

void require_one_folder(Communicator& group, FileSystem& fs, const std::string& folder) {
  if (group.size() == 1) return;
  const auto nothing = [] { return std::string(); };
  const std::string name = agree(&group, nothing, [&](const auto&) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    const std::string sign = fmt::format("ranks-{:x}", hash64(fmt::format("{} {}", folder, now)));
    fs.create(folder + "/" + sign)->close();
    return sign;
  });
  const auto look = [&] {
    if (!fs.exists(folder + "/" + name))
      throw Error(fmt::format("it does not see the run folder '{}' of rank 0", folder),
                  "choose a run.folder on a file system that all ranks share; a relative one must start from "
                  "the same folder");
    return std::string();
  };
  try {
    agree(&group, look, [&](const auto&) { return std::string(); });
  } catch (const Error&) {
    if (group.rank() == 0) fs.remove_all(folder + "/" + name);
    throw;
  }
  if (group.rank() == 0) fs.remove_all(folder + "/" + name);
}

void require_same_data(Communicator& group, const PreparedData& data) {
  if (group.size() == 1) return;
  const auto mine = [&] {
    std::string text = fmt::format("tokenizer {}\n", data.tokenizer.content_hash());
    for (const data::Dataset& source : data.sources)
      for (const data::SplitInfo& split : source.manifest().splits)
        text += fmt::format("source '{}' {} {}\n", source.name(), split.name,
                            source.manifest().content_hash(split));
    return text;
  };
  require_same(group, "data", mine, "all ranks must see one data.folder, or equal copies of it");
}

}  // namespace ingot
