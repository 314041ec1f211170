// How this program was called, so that the commands in its messages work as typed from where they are
// printed.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

/// Remembers the name by which the program was called (argv[0]) and the names of its subcommands. Until then,
/// and where $PATH finds this very program as "ingot", commands begin with "ingot". Call it before any thread
/// starts.
void set_invocation(const std::string& called, std::vector<std::string> subcommands);

/// `text` as one word of a POSIX shell's command line: in quotes where it needs them.
std::string shell_word(std::string_view text);

/// `text` with "ingot" before the name of a subcommand, or before an option, replaced by the name as called,
/// e.g. "build/release/ingot". Text without commands is unchanged.
std::string as_typed(std::string_view text);

}  // namespace ingot
