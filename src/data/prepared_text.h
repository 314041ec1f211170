// Whether text is still what something was made from: names each file that is new, gone or changed.
#pragma once
#include <string>
#include <vector>

#include "data/checked_files.h"
#include "data/manifest.h"
#include "data/source.h"

namespace ingot::data {

/// Path, size and hash of each file, from memory where it is unchanged.
std::vector<InputInfo> describe_inputs(const std::vector<SourceFile>& files, CheckedFiles& checked);

/// What differs between the files that were read then and those that `paths` (as in find_source_files) name
/// now, a line each: "'a.txt' has changed". Empty where all are the same, wherever they lie now, and where
/// all of them are gone: text may be deleted once it is tokenized. Error where `paths` name something else
/// that is not there.
std::vector<std::string> changed_text(FileSystem& fs, const std::vector<InputInfo>& then,
                                      const std::vector<std::string>& paths, CheckedFiles& checked);

}  // namespace ingot::data
