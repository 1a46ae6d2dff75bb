MODULE=gpt_oss CONFIG=gpt_oss_debugmodel ./run_train.sh
