// Files of one JSON object a line that a run appends to: metrics.jsonl, samples.jsonl. A line counts once its
// newline is there. A crash can leave a torn last line, a disk a damaged one; neither stops a run.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/file_system.h"

namespace ingot {

/// The object that a line is. Error "<where>: not a <what>: ..." where it is none, or nests deeper than
/// `deepest` before that could exhaust the stack.
nlohmann::ordered_json parse_object_line(std::string_view line, const char* what, int deepest,
                                         const std::string& where);

/// Takes a line; `where` is "path:number". Throws Error where it is damaged.
using LineReader = std::function<void(std::string_view line, const std::string& where)>;

/// Reads the complete lines of a file. One that is damaged is left out with a warning that names it.
void read_lines(FileSystem& fs, const std::string& path, const LineReader& read);

/// Adds a line (its newline comes from here), on disk when this returns. A torn last line of the file stays
/// one of its own. The file may be absent.
void append_line(FileSystem& fs, const std::string& path, const std::string& line);

/// To resume at a step: leaves only lines that the run has written up to there, atomically. `step_of` gives a
/// line's step. `ascending`: a step has one line. Damaged lines between those that stay (also by their step)
/// are appended to `path`.damaged, with a warning that names the first. The file may be absent.
void keep_lines_until(FileSystem& fs, const std::string& path, int64_t step, bool ascending,
                      const std::function<int64_t(std::string_view line, const std::string& where)>& step_of);

}  // namespace ingot
