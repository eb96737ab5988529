//! The part of RocksDB's C interface that the peer uses, as `rocksdb/c.h` of version 7.8 declares it.
//!
//! Written by hand: some fifty functions need neither bindgen nor libclang.

use std::ffi::{c_char, c_double, c_int, c_uchar, c_uint, c_void};

macro_rules! opaque {
    ($($name:ident),*) => { $(
        #[repr(C)]
        pub struct $name {
            _private: [u8; 0],
        }
    )* };
}

opaque!(
    Db,
    Options,
    TableOptions,
    ReadOptions,
    WriteOptions,
    FlushOptions,
    FilterPolicy,
    Cache,
    DbPath,
    Pinned,
    Iter
);

#[link(name = "rocksdb")]
unsafe extern "C" {
    pub fn rocksdb_open(options: *const Options, name: *const c_char, error: *mut *mut c_char) -> *mut Db;
    pub fn rocksdb_close(db: *mut Db);
    pub fn rocksdb_put(
        db: *mut Db,
        options: *const WriteOptions,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
        error: *mut *mut c_char,
    );
    pub fn rocksdb_delete(
        db: *mut Db,
        options: *const WriteOptions,
        key: *const c_char,
        key_len: usize,
        error: *mut *mut c_char,
    );
    pub fn rocksdb_get_pinned(
        db: *mut Db,
        options: *const ReadOptions,
        key: *const c_char,
        key_len: usize,
        error: *mut *mut c_char,
    ) -> *mut Pinned;
    pub fn rocksdb_pinnableslice_value(slice: *const Pinned, len: *mut usize) -> *const c_char;
    pub fn rocksdb_pinnableslice_destroy(slice: *mut Pinned);
    pub fn rocksdb_flush(db: *mut Db, options: *const FlushOptions, error: *mut *mut c_char);
    pub fn rocksdb_property_int(db: *mut Db, name: *const c_char, value: *mut u64) -> c_int;
    pub fn rocksdb_property_value(db: *mut Db, name: *const c_char) -> *mut c_char;
    pub fn rocksdb_free(pointer: *mut c_void);

    pub fn rocksdb_create_iterator(db: *mut Db, options: *const ReadOptions) -> *mut Iter;
    pub fn rocksdb_iter_destroy(iter: *mut Iter);
    pub fn rocksdb_iter_seek(iter: *mut Iter, key: *const c_char, key_len: usize);
    pub fn rocksdb_iter_next(iter: *mut Iter);
    pub fn rocksdb_iter_valid(iter: *const Iter) -> c_uchar;
    pub fn rocksdb_iter_key(iter: *const Iter, len: *mut usize) -> *const c_char;
    pub fn rocksdb_iter_value(iter: *const Iter, len: *mut usize) -> *const c_char;
    pub fn rocksdb_iter_get_error(iter: *const Iter, error: *mut *mut c_char);

    pub fn rocksdb_options_create() -> *mut Options;
    pub fn rocksdb_options_destroy(options: *mut Options);
    pub fn rocksdb_options_set_create_if_missing(options: *mut Options, on: c_uchar);
    pub fn rocksdb_options_set_compression(options: *mut Options, kind: c_int);
    pub fn rocksdb_options_set_use_direct_reads(options: *mut Options, on: c_uchar);
    pub fn rocksdb_options_set_use_direct_io_for_flush_and_compaction(options: *mut Options, on: c_uchar);
    pub fn rocksdb_options_set_max_open_files(options: *mut Options, count: c_int);
    pub fn rocksdb_options_set_max_background_jobs(options: *mut Options, count: c_int);
    pub fn rocksdb_options_set_write_buffer_size(options: *mut Options, bytes: usize);
    pub fn rocksdb_options_set_max_write_buffer_number(options: *mut Options, count: c_int);
    pub fn rocksdb_options_set_target_file_size_base(options: *mut Options, bytes: u64);
    pub fn rocksdb_options_set_max_bytes_for_level_base(options: *mut Options, bytes: u64);
    pub fn rocksdb_options_set_max_bytes_for_level_multiplier(options: *mut Options, ratio: c_double);
    pub fn rocksdb_options_set_level_compaction_dynamic_level_bytes(options: *mut Options, on: c_uchar);
    pub fn rocksdb_options_set_num_levels(options: *mut Options, count: c_int);
    pub fn rocksdb_options_set_level0_slowdown_writes_trigger(options: *mut Options, count: c_int);
    pub fn rocksdb_options_set_level0_stop_writes_trigger(options: *mut Options, count: c_int);
    pub fn rocksdb_options_set_soft_pending_compaction_bytes_limit(options: *mut Options, bytes: usize);
    pub fn rocksdb_options_set_hard_pending_compaction_bytes_limit(options: *mut Options, bytes: usize);
    pub fn rocksdb_options_set_recycle_log_file_num(options: *mut Options, count: usize);
    pub fn rocksdb_options_set_stats_dump_period_sec(options: *mut Options, seconds: c_uint);
    pub fn rocksdb_options_set_db_paths(options: *mut Options, paths: *const *const DbPath, count: usize);
    pub fn rocksdb_options_enable_statistics(options: *mut Options);
    pub fn rocksdb_options_statistics_get_string(options: *mut Options) -> *mut c_char;
    pub fn rocksdb_options_set_block_based_table_factory(options: *mut Options, table: *mut TableOptions);
    pub fn rocksdb_dbpath_create(path: *const c_char, target_bytes: u64) -> *mut DbPath;
    pub fn rocksdb_dbpath_destroy(path: *mut DbPath);

    pub fn rocksdb_block_based_options_create() -> *mut TableOptions;
    pub fn rocksdb_block_based_options_destroy(table: *mut TableOptions);
    pub fn rocksdb_block_based_options_set_block_size(table: *mut TableOptions, bytes: usize);
    pub fn rocksdb_block_based_options_set_filter_policy(table: *mut TableOptions, policy: *mut FilterPolicy);
    pub fn rocksdb_block_based_options_set_block_cache(table: *mut TableOptions, cache: *mut Cache);
    pub fn rocksdb_block_based_options_set_cache_index_and_filter_blocks(
        table: *mut TableOptions,
        on: c_uchar,
    );
    pub fn rocksdb_block_based_options_set_format_version(table: *mut TableOptions, version: c_int);
    pub fn rocksdb_filterpolicy_create_bloom_full(bits_per_key: c_double) -> *mut FilterPolicy;
    pub fn rocksdb_cache_create_lru(bytes: usize) -> *mut Cache;
    pub fn rocksdb_cache_destroy(cache: *mut Cache);

    pub fn rocksdb_readoptions_create() -> *mut ReadOptions;
    pub fn rocksdb_readoptions_destroy(options: *mut ReadOptions);
    pub fn rocksdb_writeoptions_create() -> *mut WriteOptions;
    pub fn rocksdb_writeoptions_destroy(options: *mut WriteOptions);
    pub fn rocksdb_writeoptions_disable_WAL(options: *mut WriteOptions, on: c_int);
    pub fn rocksdb_writeoptions_set_no_slowdown(options: *mut WriteOptions, on: c_uchar);
    pub fn rocksdb_flushoptions_create() -> *mut FlushOptions;
    pub fn rocksdb_flushoptions_destroy(options: *mut FlushOptions);
}
