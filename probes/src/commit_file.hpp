// The file beneath a dump that is being written: an HDF5 file driver whose changes to what is already on disk
// take effect only at commit(), and in an order in which the file is valid after each single write.
//
// HDF5 by itself updates its structures in place, in no useful order: a process that dies in the middle of a
// flush, or a disk that fills up, leaves a file in which nothing can be read. Here
//   - writes behind the committed end of the file go straight through: nothing on disk refers to them yet;
//   - writes to committed bytes are held back. commit() then applies them so that whoever is referred to comes
//     before who refers to it: raw data, superblock (the end of file), local heaps, B-trees from the root down,
//     symbol table nodes, object headers (the tables' lengths), and chosen object headers (/index, /steps) last.
//     Each is cut to the bytes that differ.
// A failed write is remembered and reported by commit(); from then on the disk is left alone, so what was
// committed stays readable. HDF5 never sees the failure: it cannot recover from a failed flush.
#pragma once
#include "h3diff/probes/result.hpp"
#include "hdf5_handle.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace h3diff::probes {

class CommitFile {
public:
  // Opens PATH for writing and empties it. A file left by a dead process is overwritten; one that a live
  // CommitFile has open is a usage error. Other failures are environment errors.
  static Result<std::unique_ptr<CommitFile>> create(const std::string& path);
  ~CommitFile();
  CommitFile(const CommitFile&) = delete;
  CommitFile& operator=(const CommitFile&) = delete;

  Handle access_list(); // a file access property list for H5Fcreate
  void set_last(std::vector<std::uint64_t> addresses) { last_ = std::move(addresses); } // of object headers, in order
  Result<void> commit();        // call after H5Fflush or H5Fclose
  Result<void> sync();          // to the device
  Result<void> failure() const; // the remembered failure, if any
  // Writes to space that HDF5 has allocated since the last commit.
  void write_through(std::uint64_t address, const void* data, std::size_t size);

  // Tests: of all commits' writes from now on, only this many happen, as if the process had died then.
  static void die_after(int writes) { writes_left = writes; }
  static int writes_allowed() { return writes_left; }

private:
  friend struct CommitDriver;
  struct Held {
    H5FD_mem_t type = H5FD_MEM_DEFAULT;
    std::vector<unsigned char> bytes;
  };

  CommitFile() = default;
  void write(H5FD_mem_t type, std::uint64_t address, const void* data, std::size_t size);
  bool read(std::uint64_t address, void* data, std::size_t size) const;
  bool put(std::uint64_t address, const unsigned char* data, std::size_t size);
  bool apply(std::uint64_t address, const Held& held);
  int rank(std::uint64_t address, const Held& held) const;

  std::string path_;
  int fd_ = -1;
  int error_ = 0;
  std::uint64_t end_ = 0;       // HDF5's end of allocation
  std::uint64_t committed_ = 0; // the same at the last commit
  std::vector<std::uint64_t> last_;
  std::map<std::uint64_t, Held> held_; // by address, disjoint
  static inline int writes_left = -1;  // no limit
};

} // namespace h3diff::probes
