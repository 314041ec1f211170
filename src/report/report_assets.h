// Style and script of the report page: private to report.cpp.
#pragma once

namespace ingot {

extern const char* const kReportStyle;   ///< CSS; colours are variables with a light and a dark set
extern const char* const kReportScript;  ///< draws the plots, and lets the reader zoom and change the axes

}  // namespace ingot
