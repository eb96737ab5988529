// What RocksDB's C interface does not offer: whether a thread's reads went to the slow directory, and a cache of blocks
// between the block cache and the tables. The Rust side is `shim.rs`, the cache itself `flash.rs`; the tests are theirs.
//
// `c.cc` of RocksDB defines `rocksdb_options_t` as a struct whose only member is `Options rep`. That is no promise, so
// `kelvin_shim_layout_holds` compares what the C interface wrote with what is read here, before anything is written.

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "rocksdb/c.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
#include "rocksdb/options.h"
#include "rocksdb/persistent_cache.h"
#include "rocksdb/table.h"

struct rocksdb_options_t {
  rocksdb::Options rep;
};

namespace {

using namespace rocksdb;

// Reads of files in the slow directory that this thread has made.
thread_local uint64_t slow_reads = 0;
// The same when this thread last asked the cache of blocks in vain.
thread_local uint64_t slow_reads_at_miss = 0;

class CountedFile : public FSRandomAccessFileOwnerWrapper {
 public:
  using FSRandomAccessFileOwnerWrapper::FSRandomAccessFileOwnerWrapper;

  IOStatus Read(uint64_t offset, size_t n, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext* dbg) const override {
    ++slow_reads;
    return FSRandomAccessFileOwnerWrapper::Read(offset, n, options, result, scratch, dbg);
  }

  IOStatus MultiRead(FSReadRequest* requests, size_t count, const IOOptions& options,
                     IODebugContext* dbg) override {
    slow_reads += count;
    return FSRandomAccessFileOwnerWrapper::MultiRead(requests, count, options, dbg);
  }

  IOStatus Prefetch(uint64_t offset, size_t n, const IOOptions& options, IODebugContext* dbg) override {
    ++slow_reads;
    return FSRandomAccessFileOwnerWrapper::Prefetch(offset, n, options, dbg);
  }

  IOStatus ReadAsync(FSReadRequest& request, const IOOptions& options,
                     std::function<void(const FSReadRequest&, void*)> done, void* argument, void** handle,
                     IOHandleDeleter* free, IODebugContext* dbg) override {
    ++slow_reads;
    return FSRandomAccessFileOwnerWrapper::ReadAsync(request, options, done, argument, handle, free, dbg);
  }
};

class CountingFiles : public FileSystemWrapper {
 public:
  CountingFiles(const std::shared_ptr<FileSystem>& files, std::string slow_dir)
      : FileSystemWrapper(files), slow_dir_(std::move(slow_dir)) {}

  const char* Name() const override { return "KelvinCountingFiles"; }

  IOStatus NewRandomAccessFile(const std::string& name, const FileOptions& options,
                               std::unique_ptr<FSRandomAccessFile>* file, IODebugContext* dbg) override {
    IOStatus status = FileSystemWrapper::NewRandomAccessFile(name, options, file, dbg);
    if (status.ok() && name.compare(0, slow_dir_.size(), slow_dir_) == 0) {
      file->reset(new CountedFile(std::move(*file)));
    }
    return status;
  }

 private:
  std::string slow_dir_;
};

// The functions of `shim.rs`. A lookup that finds a block asks for memory for it once, fills it, and answers 1.
using Allocate = char* (*)(void* to, size_t len);
using InsertBlock = void (*)(const void* cache, const char* key, size_t key_len, const char* data, size_t len);
using LookupBlock = int (*)(const void* cache, const char* key, size_t key_len, void* to, Allocate allocate);

struct Found {
  std::unique_ptr<char[]> data;
  size_t len = 0;
};

char* allocate(void* to, size_t len) {
  auto* found = static_cast<Found*>(to);
  found->data.reset(new char[len]);
  found->len = len;
  return found->data.get();
}

// Serialised blocks as tables hold them, which RocksDB checks as it does those of a file.
class BlockCache : public PersistentCache {
 public:
  BlockCache(const void* cache, InsertBlock insert, LookupBlock lookup)
      : cache_(cache), insert_(insert), lookup_(lookup) {}

  Status Insert(const Slice& key, const char* data, const size_t size) override {
    // What came from the fast directory is there already.
    if (slow_reads != slow_reads_at_miss) {
      insert_(cache_, key.data(), key.size(), data, size);
    }
    return Status::OK();
  }

  Status Lookup(const Slice& key, std::unique_ptr<char[]>* data, size_t* size) override {
    Found found;
    if (lookup_(cache_, key.data(), key.size(), &found, allocate) == 0) {
      slow_reads_at_miss = slow_reads;
      return Status::NotFound();
    }
    *data = std::move(found.data);
    *size = found.len;
    return Status::OK();
  }

  bool IsCompressed() override { return true; }
  StatsType Stats() override { return StatsType(); }
  std::string GetPrintableOptions() const override { return "Kelvin's cache of blocks\n"; }
  uint64_t NewId() override { return next_id_.fetch_add(1); }

 private:
  const void* cache_;
  InsertBlock insert_;
  LookupBlock lookup_;
  std::atomic<uint64_t> next_id_{1};
};

}  // namespace

extern "C" {

// 1 if `options` is what this file takes it for: its figures are those that the C interface set.
int kelvin_shim_layout_holds(const rocksdb_options_t* options, size_t write_buffer_size, int max_open_files,
                             uint64_t target_file_size_base) {
  return options->rep.write_buffer_size == write_buffer_size && options->rep.max_open_files == max_open_files &&
         options->rep.target_file_size_base == target_file_size_base;
}

// An environment that counts reads of files whose names begin with `slow_dir`. It must outlive `options` and what they open.
void* kelvin_shim_count_slow_reads(rocksdb_options_t* options, const char* slow_dir) {
  auto files = std::make_shared<CountingFiles>(options->rep.env->GetFileSystem(), slow_dir);
  std::unique_ptr<Env> env = NewCompositeEnv(files);
  options->rep.env = env.get();
  return env.release();
}

void kelvin_shim_env_destroy(void* env) { delete static_cast<Env*>(env); }

uint64_t kelvin_shim_slow_reads() { return slow_reads; }

// 1 if the tables of `options` will ask `cache`, which must outlive them, for blocks.
int kelvin_shim_set_block_cache(rocksdb_options_t* options, const void* cache, InsertBlock insert,
                                LookupBlock lookup) {
  auto* table = options->rep.table_factory->GetOptions<BlockBasedTableOptions>();
  if (table == nullptr) return 0;
  table->persistent_cache = std::make_shared<BlockCache>(cache, insert, lookup);
  return 1;
}
}
