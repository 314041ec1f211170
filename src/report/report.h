// The HTML report of a run: one self-contained page with a light and a dark theme, made from the files of the
// run folder (metrics.h and run_record.h define the names). Plots without data are left out.
#pragma once
#include <string>
#include <vector>

#include "base/file_system.h"
#include "report/metrics.h"
#include "report/run_record.h"

namespace ingot {

struct ReportData {
  RunRecord record;
  std::vector<MetricRow> rows;  ///< ascending steps
  std::vector<Sample> samples;
  std::string profile;  ///< its section as HTML (profile_plots.h); may be empty
};

std::string render_report(const ReportData& data);

/// A page in the style of the report: a head, then `body` (HTML). `version`: of the program.
std::string render_page(const std::string& title, const std::string& facts, const std::string& version,
                        const std::string& body);

/// Reads the run folder and writes report.html into it, atomically. Throws Error naming a missing or damaged
/// file.
void write_report(FileSystem& fs, const std::string& run_folder);

}  // namespace ingot
