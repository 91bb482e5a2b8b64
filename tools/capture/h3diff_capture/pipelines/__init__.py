"""One module for each pipeline that the capture can attach to. Each offers:

    NAME                        name of the pipeline in the dump
    shape_of(model)             ModelShape
    compute_dtype(model)        dtype of the block stack
    loading_facts(dtype)        run facts: how `load` treats the weights
    weights(model)              (probe, canonical 2-D tensor) of every weight
    attach(model, observer, taps, conditioning)
                                puts the taps on; `conditioning` is (video rows, audio rows)
    load(bundle, dtype, device) the model of a bundle
    Forward(bundle, model, dtype, device)
                                callable (video rows, audio rows, timestep, timestep_indices) -> predictions;
                                `announce` tells the observer what the arguments hide
"""
