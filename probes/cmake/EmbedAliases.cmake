# cmake -D OUTPUT=file.cpp -D FILES=a.json,b.json -P EmbedAliases.cmake
# Writes a source file that defines builtin_alias_files() (src/builtin_aliases.hpp).
string(REPLACE "," ";" FILES "${FILES}")
set(entries "")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  file(READ ${file} text)
  # A string literal may not be long without end: one raw literal a line, which the compiler joins.
  string(REPLACE "\n" ")json\"\n     R\"json(\n" text "${text}")
  string(APPEND entries "    {\"${name}\",\n     R\"json(${text})json\"},\n")
endforeach()
file(WRITE ${OUTPUT} "// Generated from probes/aliases/ by EmbedAliases.cmake.
#include \"builtin_aliases.hpp\"

namespace h3diff::probes {

const std::vector<std::pair<std::string_view, std::string_view>>& builtin_alias_files() {
  static const std::vector<std::pair<std::string_view, std::string_view>> files = {
${entries}  };
  return files;
}

} // namespace h3diff::probes
")
