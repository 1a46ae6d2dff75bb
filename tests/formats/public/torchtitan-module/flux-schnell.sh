MODULE=flux CONFIG=flux_schnell ./run_train.sh
