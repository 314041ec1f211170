// Checks whether an answer follows instructions that a program can verify ("at least 3 bullet points", "no
// commas"): rows, names and rules of IFEval (arXiv 2311.07911), strict and loose. Differences from the
// reference's libraries stand in docs/evaluate.md. Pure functions; thread-safe.
#pragma once
#include <string>
#include <vector>

#include "eval/python_text.h"

namespace ingot {

/// Names that are known ("punctuation:no_comma"), ascending.
std::vector<std::string> instruction_names();

/// Whether `answer` follows one instruction. `arguments` is an object; null values are absent. Error for a
/// name that is unknown or an argument that is missing or of another type; `where` names the row.
bool follows_instruction(const std::string& name, const TaskJson& arguments, const std::string& answer,
                         const std::string& where);

/// {"prompt_level_strict_acc": bool, "inst_level_strict_acc": [bool], "prompt_level_loose_acc": ...}. The
/// row has "instruction_id_list" and "kwargs", two lists of one length. Loose: one of eight forms of the
/// answer, without its first or last line or its asterisks, follows.
TaskJson instruction_metrics(const TaskJson& row, const std::string& answer, const std::string& where);

}  // namespace ingot
