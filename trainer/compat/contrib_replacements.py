"""Sentences for error texts, which say what replaces the symbols of tf.contrib that tpuserve lacks.

The sentence for a module applies to all symbols of the module that have no sentence of their own.
"""

from collections.abc import Mapping

from trainer.compat.source.estimator_names import BOOSTED_TREES, SAVED_MODEL_ESTIMATOR

_STRATEGY = "Use TPUEstimator, each core of which runs a replica."
_KERAS = "Use trainer.model_to_tpu_estimator(model, ...)."
TPU_EMBEDDING = (
    "Describe the tables in an EmbeddingConfigSpec, and give it to TPUEstimator as "
    "embedding_config_spec."
)
_COLUMN = "Use tf.feature_column.{}."
_TFP = "Use the package tensorflow-probability."
_TFA = "Copy the code from tensorflow-addons, which is no longer maintained."
_LEARN = "Use trainer.Estimator or trainer.TPUEstimator with a model_fn."
_ESTIMATOR_LOOP = "Use the methods train and evaluate of trainer.TPUEstimator."

_TPU = {
    "TPUEmbedding": TPU_EMBEDDING,
    "TPUDistributionStrategy": _KERAS,
    "keras_to_tpu_model": _KERAS,
    "proto": "Import the module from tensorflow.core.protobuf.tpu.",
    "profiler": "Use RunConfig(profile_steps=(first, last)) and TensorBoard's profiler.",
    "python.tpu.keras_support": _KERAS,
    "python.tpu.session_support": "Remove the call: the trainer manages its sessions.",
    "python.tpu.tpu_embedding_gradient": TPU_EMBEDDING,
    "python.tpu.error_handling": "Remove the call: the trainer raises the root cause of an error.",
    "python.profiler": "Use RunConfig(profile_steps=(first, last)) and TensorBoard's profiler.",
}

_DATA = {
    "LMDBDataset": "Write the records to TFRecord files, and use TFRecordDataset.",
    "StatsAggregator": "Use TensorBoard's profiler.",
    "latency_stats": "Use TensorBoard's profiler.",
    "bytes_produced_stats": "Use TensorBoard's profiler.",
    "feature_stats": "Use TensorBoard's profiler.",
    "set_stats_aggregator": "Use TensorBoard's profiler.",
    "read_batch_features": "Use make_batched_features_dataset.",
    "reduce_dataset": "Use Dataset.reduce.",
    "python.ops.threadpool": "Use tf.data.Options().threading.private_threadpool_size.",
    "python.ops.optimization": "Use tf.data.Options().",
}

_TRAINING = {
    "batch_sequences_with_states": "Use tf.data.Dataset.padded_batch.",
    "bucket": "Use tf.data.experimental.group_by_window.",
    "bucket_by_sequence_length": "Use tf.data.experimental.bucket_by_sequence_length.",
    "evaluate_once": _ESTIMATOR_LOOP,
    "evaluate_repeatedly": _ESTIMATOR_LOOP,
    "stratified_sample": "Use tf.data.experimental.rejection_resample.",
    "rejection_sample": "Use tf.data.experimental.rejection_resample.",
    "weighted_resample": "Use tf.data.experimental.sample_from_datasets.",
    "train": _ESTIMATOR_LOOP,
    "SummaryAtEndHook": "Use tf.train.SummarySaverHook.",
    "GreedyLoadBalancingStrategy": "Use tf.train.replica_device_setter with its default strategy.",
    "RandomStrategy": "Use tf.train.replica_device_setter with its default strategy.",
    "byte_size_load_fn": "Use tf.train.replica_device_setter with its default strategy.",
    "FeedingQueueRunner": "Use tf.data.Dataset.prefetch.",
    "NextQueuedSequenceBatch": "Use tf.data.Dataset.padded_batch.",
    "SequenceQueueingStateSaver": "Use tf.data.Dataset.padded_batch.",
    "resample_at_rate": "Use tf.data.experimental.sample_from_datasets.",
    "HParamDef": "Use HParams.to_json and HParams.parse_json.",
}

_LAYERS = {
    "adaptive_clipping_fn": "Pass clip_gradients, a float or a function, to optimize_loss.",
    "bow_encoder": "Use embed_sequence and tf.reduce_mean.",
    "bucketized_column": _COLUMN.format("bucketized_column"),
    "check_feature_columns": "Remove the call: tf.feature_column checks the columns.",
    "conv2d_in_plane": "Use tf.nn.depthwise_conv2d.",
    "conv3d_transpose": "Use tf.layers.conv3d_transpose.",
    "create_feature_spec_for_parsing": _COLUMN.format("make_parse_example_spec"),
    "crossed_column": _COLUMN.format("crossed_column"),
    "dense_to_sparse": "Use tf.sparse.from_dense.",
    "embedding_column": _COLUMN.format("embedding_column"),
    "embedding_lookup_unique": "Use tf.nn.embedding_lookup.",
    "convolution2d_in_plane": "Use tf.nn.depthwise_conv2d.",
    "convolution3d_transpose": "Use tf.layers.conv3d_transpose.",
    "feature_column": "Use tf.feature_column.",
    "gdn": _TFA,
    "GDN": _TFA,
    "images_to_sequence": "Use tf.reshape and tf.transpose.",
    "infer_real_valued_columns": _COLUMN.format("numeric_column"),
    "joint_weighted_sum_from_feature_columns": _COLUMN.format("linear_model"),
    "legacy_linear": "Use linear.",
    "legacy_relu": "Use relu.",
    "multi_class_target": "Use tf.contrib.estimator.multi_class_head.",
    "parse_feature_columns_from_sequence_examples": (
        "Use tf.io.parse_sequence_example and tf.feature_column."
    ),
    "regression_target": "Use tf.contrib.estimator.regression_head.",
    "rev_block": "Use tf.recompute_grad for each block.",
    "RevBlock": "Use tf.recompute_grad for each block.",
    "recompute_grad": "Use tf.recompute_grad, within tf.variable_scope(..., use_resource=True).",
    "scale_gradient": "Use tf.custom_gradient.",
    "sequence_input_from_feature_columns": "Use tf.keras.experimental.SequenceFeatures.",
    "sequence_to_images": "Use tf.reshape and tf.transpose.",
    "input_from_feature_columns": _COLUMN.format("input_layer"),
    "legacy_fully_connected": "Use fully_connected.",
    "one_hot_column": _COLUMN.format("indicator_column"),
    "parse_feature_columns_from_examples": "Use tf.io.parse_example and tf.feature_column.",
    "pool": "Use tf.nn.pool.",
    "real_valued_column": _COLUMN.format("numeric_column"),
    "scattered_embedding_column": _COLUMN.format("embedding_column"),
    "shared_embedding_columns": _COLUMN.format("shared_embedding_columns"),
    "sparse_column_with_hash_bucket": _COLUMN.format("categorical_column_with_hash_bucket"),
    "sparse_column_with_integerized_feature": _COLUMN.format("categorical_column_with_identity"),
    "sparse_column_with_keys": _COLUMN.format("categorical_column_with_vocabulary_list"),
    "sparse_column_with_vocabulary_file": _COLUMN.format("categorical_column_with_vocabulary_file"),
    "spatial_softmax": _TFA,
    "transform_features": _COLUMN.format("input_layer"),
    "weighted_sparse_column": _COLUMN.format("weighted_categorical_column"),
    "weighted_sum_from_feature_columns": _COLUMN.format("linear_model"),
}

_FRAMEWORK = {
    "VariableDeviceChooser": "Use tf.train.replica_device_setter.",
    "RecordInput": "Use tf.data.TFRecordDataset.",
    "fuse_op": "Remove the call: XLA fuses ops automatically.",
    "get_graph_from_inputs": "Use tensor.graph.",
    "load_and_remap_matrix": "Use WarmStartSettings with a VocabInfo.",
    "load_and_remap_matrix_initializer": "Use WarmStartSettings with a VocabInfo.",
    "load_embedding_initializer": "Use WarmStartSettings with a VocabInfo.",
    "load_linear_multiclass_bias_initializer": "Use WarmStartSettings with a VocabInfo.",
    "load_variable_slot_initializer": "Use WarmStartSettings with a VocabInfo.",
    "py_func": "Use tf.py_func.",
    "python.ops.accumulate_n_v2": "Use tf.math.add_n.",
    "python.ops.prettyprint_ops": "Use tf.print.",
    "prepend_name_scope": "Join the names with a slash.",
    "strip_name_scope": "Cut the name at its last slash.",
    "zero_fraction": "Use tf.nn.zero_fraction.",
}

_ESTIMATOR = {
    "boosted_trees_classifier_train_in_memory": BOOSTED_TREES,
    "boosted_trees_regressor_train_in_memory": BOOSTED_TREES,
    "DNNClassifierWithLayerAnnotations": "Use tf.estimator.DNNClassifier.",
    "DNNRegressorWithLayerAnnotations": "Use tf.estimator.DNNRegressor.",
    "SavedModelEstimator": SAVED_MODEL_ESTIMATOR,
}

_OPT = {
    "AGNCustomGetter": "Use CrossShardOptimizer.",
    "ElasticAverageCustomGetter": "Use CrossShardOptimizer.",
    "ModelAverageCustomGetter": "Use CrossShardOptimizer.",
    "AGNOptimizer": "Use CrossShardOptimizer, which sums the gradients.",
    "AdamGSOptimizer": "Use tf.train.AdamOptimizer.",
    "DelayCompensatedGradientDescentOptimizer": "Use CrossShardOptimizer: steps are synchronous.",
    "DropStaleGradientOptimizer": "Use CrossShardOptimizer: no gradient is stale.",
    "ElasticAverageOptimizer": "Use CrossShardOptimizer.",
    "ExternalOptimizerInterface": "Use scipy.optimize with your own session.",
    "GGTOptimizer": "Use AdamWOptimizer, or write a tf.train.Optimizer.",
    "LazyAdamGSOptimizer": "Use LazyAdamOptimizer.",
    "ModelAverageOptimizer": "Use CrossShardOptimizer or MovingAverageOptimizer.",
    "MultitaskOptimizerWrapper": "Pass only variables with a gradient to apply_gradients.",
    "RegAdagradOptimizer": "Use tf.train.AdagradOptimizer.",
    "ScipyOptimizerInterface": "Use scipy.optimize with your own session.",
    "ShampooOptimizer": "Use LARSOptimizer or AdamWOptimizer, or write a tf.train.Optimizer.",
    "VariableClippingOptimizer": "Clip the variables with tf.clip_by_norm after the step.",
    "clip_gradients_by_global_norm": "Use tf.clip_by_global_norm.",
    "get_restart_decay_fn": "Use get_cosine_decay_fn.",
}

_OTHERS = {
    "crf.CrfForwardRnnCell": "Use crf_log_norm.",
    "crf.CrfDecodeForwardRnnCell": "Use crf_decode.",
    "crf.CrfDecodeBackwardRnnCell": "Use crf_decode.",
    "crf.crf_multitag_sequence_score": "Use crf_sequence_score with one tag per step.",
    "eager.Network": "Use tf.keras.Model.",
    "eager.Saver": "Use tf.train.Checkpoint.",
    "eager.Checkpointable": "Use tf.Module.",
    "eager.Iterator": "Use iter(dataset).",
    "eager.Sequential": "Use tf.keras.Sequential.",
    "eager.metrics": "Use tf.keras.metrics.",
    "estimator.python": "Use the names of tf.contrib.estimator.",
    "losses.cosine_distance": "Use tf.losses.cosine_distance.",
    "losses.sum_of_squares": "Use tf.losses.mean_squared_error.",
    "metrics.confusion_matrix": "Use tf.math.confusion_matrix.",
    "metrics.streaming_concat": "Return the tensor as a prediction, and use predict.",
    "metrics": "Use tf.metrics, whose functions take the labels first.",
    "image.adjust_hsv_in_yiq": "Use tf.image.adjust_hue and tf.image.adjust_saturation.",
    "image.bipartite_match": _TFA,
    "image.connected_components": "Use scipy.ndimage.label in the input pipeline.",
    "image.dense_image_warp": _TFA,
    "image.interpolate_spline": _TFA,
    "image.random_hsv_in_yiq": "Use tf.image.random_hue and tf.image.random_saturation.",
    "image.sparse_image_warp": _TFA,
    "predictor.from_contrib_estimator": "Use from_estimator.",
    "rnn.AttentionCellWrapper": "Implement attention in the cell, or use tf.keras.",
    "rnn.ConvLSTMCell": "Use tf.keras.layers.ConvLSTM2D.",
    "rnn.GLSTMCell": "Use LSTMCell.",
    "rnn.NASCell": "Use LSTMCell.",
    "rnn.OutputProjectionWrapper": "Use tf.layers.dense on the outputs.",
    "rnn.InputProjectionWrapper": "Use tf.layers.dense on the inputs.",
    "rnn.EmbeddingWrapper": "Use tf.nn.embedding_lookup on the inputs.",
    "rnn": "Use tf.nn.rnn_cell, or tf.keras.layers.",
    "seq2seq": "Write the loop with tf.while_loop; only sequence_loss is supplied.",
    "slim.evaluation": _ESTIMATOR_LOOP,
    "slim.learning.train": _ESTIMATOR_LOOP,
    "slim.python": "Use the names of tf.contrib.slim.",
    "tfprof.ProfileContext": "Use RunConfig(profile_steps=(first, last)).",
    "tfprof.Profiler": "Use tf.profiler.Profiler.",
    "compiler": "Use tf.xla.experimental.",
    "summary.create_db_writer": "Use create_file_writer.",
    "image.single_image_random_dot_stereograms": "Create the image with NumPy.",
    "losses.mean_pairwise_squared_error": "Use tf.losses.mean_pairwise_squared_error.",
    "util.loader": "Use tf.load_op_library.",
    "util.ops_used_by_graph_def": "Use {node.op for node in graph_def.node}.",
    "util.stripped_op_list_for_graph": "Use tf.saved_model, which writes the list of ops.",
    "lookup.string_to_index_table_from_file": "Use index_table_from_file.",
    "lookup.string_to_index_table_from_tensor": "Use index_table_from_tensor.",
    "eager": "Use tf, whose functions run eagerly in TensorFlow 2.",
    "summary.text": "Use tf.compat.v2.summary.text.",
}

# The modules of tf.contrib that tpuserve does not supply: name below tf.contrib → a sentence that
# says what to use instead.
_REMOVED_MODULES = {
    "autograph": "Use tf.autograph.",
    "batching": "Use tf.nondifferentiable_batch_function.",
    "bayesflow": _TFP,
    "bigtable": "Read from Bigtable with google-cloud-bigtable, and write TFRecord files.",
    "boosted_trees": BOOSTED_TREES,
    "checkpoint": "Use tf.train.Checkpoint.",
    "cloud": "Remove the import: gs:// paths need no module. For others use tensorflow-io.",
    "constrained_optimization": "Use the package tensorflow-constrained-optimization.",
    "copy_graph": "Use tf.graph_util.import_graph_def.",
    "cudnn_rnn": "Use the layers and cells of tf.contrib.cudnn_rnn, which need no GPU.",
    "deprecated": "Use tf.summary.",
    "distribute": _STRATEGY,
    "distributions": _TFP,
    "factorization": "Use tf.nn and your own loss.",
    "factorization.KMeans": "Use tf.contrib.factorization.KMeansClustering.",
    "feature_column": "Use tf.feature_column.",
    "ffmpeg": "Use the package tensorflow-io.",
    "gan": "Use the package tensorflow-gan: pip install tensorflow-gan.",
    "graph_editor": "Edit a GraphDef, and import the result with tf.graph_util.import_graph_def.",
    "grid_rnn": "Use tf.nn.rnn_cell.",
    "hadoop": "Use the package tensorflow-io.",
    "hooks": "Use tf.train.ProfilerHook.",
    "input_pipeline": "Use tf.data.",
    "integrate": _TFP,
    "kafka": "Use the package tensorflow-io.",
    "keras": "Use tf.keras.",
    "kernel_methods": "Use tf.keras.layers.experimental.RandomFourierFeatures of tf-keras.",
    "kinesis": "Use the package tensorflow-io.",
    "labeled_tensor": "Use tf.Tensor.",
    "learn": _LEARN,
    "learn.datasets": "Read the data with tf.data; MNIST is tf.keras.datasets.mnist.",
    "learn.Experiment": "Use tf.estimator.train_and_evaluate(estimator, TrainSpec, EvalSpec).",
    "learn.infer_real_valued_columns_from_input": _COLUMN.format("numeric_column"),
    "learn.learn_runner": "Use tf.estimator.train_and_evaluate(estimator, TrainSpec, EvalSpec).",
    "learn.monitors": "Use tf.train.SessionRunHook and its subclasses.",
    "learn.python.learn.datasets": (
        "Read the data with tf.data; MNIST is tf.keras.datasets.mnist."
    ),
    "learn.python.learn.learn_runner": (
        "Use tf.estimator.train_and_evaluate(estimator, TrainSpec, EvalSpec)."
    ),
    "learn.RunConfig": "Use tf.estimator.RunConfig, or tf.contrib.tpu.RunConfig.",
    "legacy_seq2seq": "Write the loop with tf.while_loop.",
    "linalg": "Use tf.linalg.",
    "linear_optimizer": "Use tf.train.FtrlOptimizer.",
    "lite": "Use tf.lite.",
    "memory_stats": "Use tf.config.experimental.get_memory_info.",
    "meta_graph_transform": "Edit the GraphDef of the metagraph.",
    "mixed_precision": "Use tf.contrib.tpu.bfloat16_scope.",
    "model_pruning": "Use the package tensorflow-model-optimization.",
    "nccl": "Use CrossShardOptimizer.",
    "nearest_neighbor": "Use tf.math.top_k on distances.",
    "nn": "Use tf.nn.",
    "periodic_resample": "Use tf.image.resize.",
    "proto": "Use tf.io.decode_proto and encode_proto.",
    "quantization": "Use tf.quantization.",
    "quantize": "Use the package tensorflow-model-optimization.",
    "receptive_field": "Compute the receptive field from kernel sizes and strides.",
    "recurrent": "Use tf.nn.dynamic_rnn.",
    "reduce_slice_ops": "Use tf.math.segment_sum and similar functions.",
    "remote_fused_graph": "Remove the call: the module supported only DSPs of phones.",
    "resampler": _TFA,
    "saved_model": "Use tf.saved_model, or trainer.model_to_tpu_estimator for Keras models.",
    "session_bundle": "Use tf.saved_model.",
    "signal": "Use tf.signal.",
    "solvers": "Use tf.linalg.",
    "sparsemax": _TFA,
    "specs": "Use tf.layers.",
    "staging": "Use Dataset.prefetch.",
    "stat_summarizer": "Use TensorBoard's profiler.",
    "stateful_random": "Use tf.random.Generator.",
    "tensor_forest": "Use the package tensorflow-decision-forests.",
    "tensorboard": "Use tf.contrib.tensorboard.plugins.projector.",
    "tensorrt": "Use tf.experimental.tensorrt.",
    "testing": "Use tf.test.",
    "text": "Use the package tensorflow-text.",
    "timeseries": (
        "tensorflow_estimator.python.estimator.canned.timeseries.estimators has LSTMAutoRegressor."
    ),
}

# All sentences: full name of a module or symbol, such as "tf.contrib.checkpoint" → a sentence that
# says what to use instead.
REPLACEMENTS: Mapping[str, str] = {
    f"tf.contrib.{prefix}{name}": sentence
    for prefix, table in (
        ("tpu.", _TPU),
        ("data.", _DATA),
        ("training.", _TRAINING),
        ("layers.", _LAYERS),
        ("framework.", _FRAMEWORK),
        ("estimator.", _ESTIMATOR),
        ("opt.", _OPT),
        ("", _OTHERS),
        ("", _REMOVED_MODULES),
    )
    for name, sentence in table.items()
}
